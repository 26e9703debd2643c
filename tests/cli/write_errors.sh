# Output that cannot be written: exit code 1, a message, and nothing half written.
. "$TOOLS/lib.sh"
[ -w /dev/full ] || { echo "there is no /dev/full here"; exit 77; }
sample in.npy 4096
try tersegrad encode none in.npy nowhere/out.tg
mkdir folder
try tersegrad encode none in.npy -o folder
try tersegrad encode none in.npy in.npy/out.tg
try tersegrad encode none in.npy -o /dev/full
try tersegrad encode qsgd in.npy -o /dev/null
try_line 'tersegrad encode none in.npy - >/dev/full'
try_line 'tersegrad codecs >/dev/full'
try_line 'tersegrad codecs --json >/dev/full'
echo "# what was there stays after a failure"
echo precious >out.npy
echo broken >bad.tg
try tersegrad decode --force bad.tg out.npy
cat out.npy
echo "# through a link"
ln -s target link
echo old >target
tersegrad encode none in.npy -o link -f -q
[ -L link ] && tersegrad decode target -o out.npy -f
echo "# permissions"
umask 027
tersegrad encode none in.npy -o new.tg -q
chmod 604 target
tersegrad encode none in.npy -o target -f -q
ls -l new.tg target | cut -c 1-10
ls
