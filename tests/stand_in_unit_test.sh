#!/bin/sh
case "$*" in
*:A.skips:A.dies)
    printf '%s\n' "[ RUN      ] A.fails" "[  FAILED  ] A.fails, where GetParam() = 1" \
        "[ RUN      ] A.good" "[       OK ] A.good (1 ms)" "[  FAILED  ] A.fails" ;;
*)
    printf '%s\n' "[ RUN      ] A.skips" "[  SKIPPED ] A.skips (0 ms)" "[ RUN      ] A.dies"
    kill $$ ;;
esac
