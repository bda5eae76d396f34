"""Tables of programs, options and variables by which a line of bash can run other commands.

Standard library only: the gate's program loads this file.
"""

from __future__ import annotations

import re

#: Programs that run the command among their arguments, and their options of one letter that take a value.
WRAPPERS = {
    "sudo": "ughpCrtTUDR", "doas": "uC", "env": "uC", "xargs": "nPILsdEa", "parallel": "jnI", "timeout": "ks",
    "nice": "n", "ionice": "cnp", "stdbuf": "ioe", "time": "fo", "strace": "eopsu", "ltrace": "eopsu",
    "ssh": "bcDEeFIiJLlmOopQRSWw", "flock": "wE", "exec": "a", "npx": "p", "su": "sgG", "watch": "n",
    "runuser": "u", "nsenter": "t", "systemd-run": "pu", "xvfb-run": "n", "eval": "", "command": "",
    "builtin": "", "nohup": "", "setsid": "", "chronic": "", "unbuffer": "", "eatmydata": "", "fakeroot": "",
    "chroot": "", "taskset": "", "chrt": "", "setarch": "", "linux32": "", "linux64": "", "busybox": "",
    "prlimit": "", "setpriv": "", "unshare": "", "uvx": "", "catchsegv": "", "valgrind": "", "bwrap": "",
    "firejail": "", "faketime": "", "hyperfine": "", "entr": "", "dbus-run-session": "",
    "function": "", "coproc": "",
    "pkexec": "", "run0": "", "uname26": "", "numactl": "NmCp", "proot": "", "ifne": "", "bunx": "",
    "su-exec": "", "gosu": "", "chpst": "u", "envdir": "", "dumb-init": "", "tini": "", "wsl": "", "lima": "",
    "flatpak-spawn": "", "sshpass": "pfd", "autossh": "", "plink": "", "pssh": "hH", "watchexec": "",
    "dockerize": "", "sem": "", "rush": "", "toybox": "", "noglob": "", "nocorrect": "",
}  # fmt: skip
#: How many words stand between such a program and the command, besides options.
POSITIONAL_WORDS = {"timeout": 1, "ssh": 1, "flock": 1, "chroot": 1, "taskset": 1, "chrt": 1, "faketime": 1}
POSITIONAL_WORDS |= {"gosu": 1, "su-exec": 1, "envdir": 1, "autossh": 1, "plink": 1}
#: Programs with a command anywhere among their arguments.
CONTAIN_COMMAND = {
    "find", "fd", "docker", "podman", "kubectl", "poetry", "uv", "pipx", "direnv", "mise", "nix-shell",
    "tmux", "screen", "start-stop-daemon", "at", "batch", "ip", "script", "gdb", "cpulimit", "fdfind",
    "nerdctl", "docker-compose", "conda", "micromamba", "cgexec", "perf", "nix", "bun",
}  # fmt: skip
#: Another command begins after these words: always after the first set, maybe after the second.
BEFORE_COMMAND = {"-exec", "-execdir", "-ok", "-okdir", "foreach"}
BEFORE_KNOWN_COMMAND = {*BEFORE_COMMAND, "exec", "run", "--"}
SHELLS = {"bash", "sh", "dash", "zsh", "ksh", "mksh", "fish", "ash", "csh", "tcsh", "rbash", "pwsh"}
SHELLS |= {"elvish", "nu", "xonsh", "rc"}
#: Interpreters of other languages, which also run their input. Their programs are searched for commands.
LANGUAGES = {
    "python", "python2", "python3", "pypy3", "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua",
    "tclsh", "expect", "osascript", "Rscript", "julia", "guile", "elixir", "jshell", "ipython", "tsx",
    "ts-node",
}  # fmt: skip
#: All programs whose arguments are searched: they have commands of their own that run other programs.
SEARCHED = {*LANGUAGES, "vi", "vim", "nvim", "ex", "ed", "emacs", "gdb", "lldb", "sqlite3", "mysql", "psql"}
SEARCHED |= {"ghc", "ghci", "erl", "swipl", "ftp", "powershell", "crontab", "fzf"}
SEARCHED |= {"make", "gmake"}
#: Programs that pass arguments with blanks to a shell.
GIVE_TO_SHELL = {
    "eval", "trap", "alias", "env", "sudo", "su", "doas", "script", "flock", "watch", "parallel", "xargs",
    "ssh", "tmux", "screen", "tar", "bsdtar", "rsync", "scp", "sftp", "find", "fd", "mapfile", "readarray",
    "complete", "compgen", "bind", "split", "sort", "zip", "man", "less", "socat", "nc", "ncat", "docker",
    "podman", "kubectl", "npx", "npm", "nix-shell", "entr", "hyperfine", "runuser", "at", "batch", "busybox",
    "strace", "concurrently", "nodemon", "xvfb-run", "systemd-run", "sops", "vagrant", "pssh", "ansible",
    "cpio", "fzf", "fdfind", "nerdctl", "docker-compose", "cargo", "rush", "sem", "watchexec", "wsl",
}  # fmt: skip
#: git passes the words after these to a shell; its other words are text.
GIT_RUNS = {"-c", "-x", "--exec", "foreach", "run", "--tree-filter", "--index-filter", "--msg-filter"}
GIT_RUNS |= {"--env-filter", "--upload-pack", "--receive-pack", "--config-env", "--extcmd", "--command"}
GIT_RUNS |= {"--open-files-in-pager", "-u", "-O"}
#: Keys of git's settings whose value is passed to a shell.
GIT_KEY_RUNS = re.compile(
    r"(core\.(pager|editor|sshcommand|fsmonitor|askpass)|.*\.(cmd|command|program|helper))\Z", re.IGNORECASE
)
#: Builtins that evaluate words a second time: `[[ -v 'a[$(…)]' ]]`.
EVALUATE = {"[[", "[", "test", "let", "printf", "unset", "declare", "typeset", "local", "export", "read"}
EVALUATE |= {"readonly", "wait", "getopts", "mapfile", "readarray"}
#: Variables whose value another program runs, and those that make any program run something else.
RUN_VALUE = re.compile(
    r"(PROMPT_COMMAND|PS[0124]|VISUAL|BROWSER|LESSOPEN|LESSCLOSE|GIT_SSH|GIT_EXTERNAL_DIFF"
    r"|\w*(PAGER|EDITOR|_COMMAND|_RSH|_ASKPASS))\Z"
)
REPLACE_ALL = {"BASH_ENV", "ENV", "LD_PRELOAD", "LD_AUDIT", "ZDOTDIR", "PYTHONSTARTUP"}
REPLACE_ALL |= {"GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"}
#: Variables that do so only with some values.
REPLACE_WITH = {
    "PERL5OPT": re.compile(r"-\w*[Mmd]"),
    "RUBYOPT": re.compile(r"-\w*r"),
    "NODE_OPTIONS": re.compile(r"(^|\s)(-r|--require|--import|--loader|--experimental-loader)\b"),
    "MAKEFLAGS": re.compile(r"eval|SHELL|(^|\s)-?\w*[fE]"),
    "GIT_CONFIG_GLOBAL": re.compile(r"\A(?!/dev/null\Z)"),
    "GIT_CONFIG_SYSTEM": re.compile(r"\A(?!/dev/null\Z)"),
}
#: git's own options before its subcommand that take the next word.
GIT_VALUES = {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix"}
GIT_VALUES |= {"--config-env", "--attr-source", "--exec-path", "--list-cmds"}
#: sed's commands that run its input, and awk's ways to run a command.
SED_RUNS = re.compile(
    r"(?:\A|[\d$/;{}\n!])\s*e(?:\s|\Z)|/[gpiIMm0-9]*e[gpiIMm0-9]*(?:\Z|[\s;}])"
    r"|(?:\A|[\s;{}\d$/!])s([^\w\s\\])(?:\\.|(?!\1)[^\\])*\1(?:\\.|(?!\1)[^\\])*\1[gpiIMm0-9]*e"
)
AWK_TEXT = re.compile(r"\"(?:\\.|[^\"\\])*\"|/(?:\\.|[^/\\\n])*/")
AWK_RUNS = re.compile(r"\bsystem\b|(?<!\|)\|(?!\|)|@load")
#: Programs that read commands from a file, and the options before that file.
READ_PROGRAM = {
    **{name: {"-f"} for name in ("sed", "awk", "gawk", "mawk", "nawk")},
    **{name: {"-S"} for name in ("vi", "vim", "nvim", "ex")},
    "crontab": {"-"},
}
#: Options before a program in the interpreter's language.
PROGRAM_TEXT = {"-c", "-e", "-r", "-p", "-E", "--eval", "--print"}
