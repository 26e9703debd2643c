# zsh can parse its completion.
command -v zsh >/dev/null || { echo "zsh is not installed, so its completion was not parsed"; exit 77; }
zsh -n "$SHARE/_tersegrad"
echo "-> $?"
echo "# one that is broken is found"
sed 's/^    inspect)/    inspect/' "$SHARE/_tersegrad" >broken
zsh -n broken 2>/dev/null && echo "zsh parses everything"
echo "done"
