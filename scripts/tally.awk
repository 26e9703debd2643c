# Reads what one test program printed and prints "passed failed skipped reasons": how many tests did what, and how many
# lines name the reason of a skip. Knows our own closing line, cmocka's and pytest's.
function count(word,   parts) {
    return match($0, "[0-9]+ " word) ? substr($0, RSTART, RLENGTH) + 0 : 0
}
/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { own = 1; passed = $1; failed = $3; skipped = $5 }
/^\[  PASSED  \] .*test\(s\)/ { passed += count("test") }
/^\[  FAILED  \] .*test\(s\)/ { failed += count("test") }
/^\[  SKIPPED \] .*test\(s\)/ { skipped += count("test") }
/^=* ?([0-9]+ [a-z]+(, )?)+ in [0-9.]+s/ {
    passed += count("passed"); failed += count("failed") + count("error"); skipped += count("skipped")
}
/^(skip|SKIPPED)[: ]/ { reasons++ }
END { print passed + 0, failed + 0, skipped + 0, reasons + 0 }
