# Runs one program so that nothing of it outlives the process that started this shell, however that one ends.
#   sh -c SCRIPT NAME LOG PROGRAM ARGUMENT...
# The starter holds the only write end of standard input: each line read there is a signal name to pass on, and end of
# file means that the starter is gone or done, so the program is killed. Standard output reports "pid N", then "exit N".
# This shell must lead its own process group: at the end the whole group is killed.
log=$1
shift
exec 3<&0 4>&1 </dev/null >>"$log" 2>&1
"$@" 3<&- 4>&- &
child=$!
echo "pid $child" >&4
(
    exec 4>&-
    while read -r signal; do kill -s "$signal" "$child"; done
    kill -s KILL "$child" 2>/dev/null
    # When this subshell's parent has been killed too, nobody else would end the group.
    kill -s 0 $$ 2>/dev/null || kill -s KILL -- "-$$"
) <&3 &
exec 3<&-
wait "$child"
echo "exit $?" >&4
kill -s KILL -- "-$$"
