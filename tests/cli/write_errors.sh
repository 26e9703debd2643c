# Output that cannot be written: exit code 1, a message, and nothing half written.
. "$TOOLS/lib.sh"
[ -w /dev/full ] || { echo "there is no /dev/full here"; exit 77; }
sample in.npy 4096
try tersegrad encode none in.npy nowhere/out.tg
mkdir folder
try tersegrad encode none in.npy folder
try tersegrad encode none in.npy in.npy/out.tg
try tersegrad encode none in.npy /dev/full
try tersegrad encode qsgd in.npy /dev/null
try_line 'tersegrad encode none in.npy - >/dev/full'
try_line 'tersegrad codecs >/dev/full'
try_line 'tersegrad codecs --json >/dev/full'
echo "# what was there stays after a failure"
echo precious >out.npy
echo broken >bad.tg
try tersegrad decode bad.tg out.npy
cat out.npy
echo "# output in place of input, and through a link"
tersegrad encode none in.npy same >/dev/null
tersegrad decode same same >/dev/null
cmp same in.npy && echo same
ln -s target link
echo old >target
tersegrad encode none in.npy link >/dev/null
[ -L link ] && tersegrad decode target out.npy
echo "# permissions"
umask 027
tersegrad encode none in.npy new.tg >/dev/null
chmod 604 target
tersegrad encode none in.npy target >/dev/null
ls -l new.tg target | cut -c 1-10
ls
