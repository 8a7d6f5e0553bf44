# bash completion for cupool. The names of options come from the command itself.
_cupool() {
  local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} i
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "run doctor compare merge top trim trace report diff waits replay tune fit options help version" -- "$word")
    return
  fi
  case $verb in
    run | doctor | compare)
      # Behind the program's name everything is the program's.
      for ((i = 2; i < COMP_CWORD; ++i)); do
        case ${COMP_WORDS[i]} in
          --set | --stats | -n) ((++i)) ;;
          --) ((++i)) ; break ;;
          -*) ;;
          *) break ;;
        esac
      done
      if [ "$i" -lt "$COMP_CWORD" ]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
      fi
      case ${COMP_WORDS[COMP_CWORD - 1]} in
        --set)
          mapfile -t COMPREPLY < <(compgen -S = -W "$(cupool options --all | sed -n 's/^CUPOOL_\([A-Z_]*\)=.*/\L\1/p')" -- "$word")
          compopt -o nospace 2> /dev/null
          return
          ;;
        --stats)
          mapfile -t COMPREPLY < <(compgen -W "summary text json off" -- "$word")
          return
          ;;
      esac
      if [[ $word == -* ]]; then
        local flags="--json --help"
        [ "$verb" = run ] && flags="--set --stats --report $flags"
        [ "$verb" = compare ] && flags="-n $flags"
        mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
      else
        mapfile -t COMPREPLY < <(compgen -c -- "$word")
      fi
      ;;
    merge)
      mapfile -t COMPREPLY < <(compgen -W "--json --help" -- "$word"; compgen -f -X '!*.json' -- "$word")
      ;;
    top)
      if [ "${COMP_WORDS[COMP_CWORD - 1]}" = --sort ]; then
        mapfile -t COMPREPLY < <(compgen -W "reserved live cached peak waits pid user name device" -- "$word")
        return
      fi
      mapfile -t COMPREPLY < <(compgen -W "--once --json --openmetrics --sort --help" -- "$word")
      ;;
    trim)
      mapfile -t COMPREPLY < <(compgen -W "all --help $(cupool top --once 2> /dev/null | sed -n 's/^ *\([0-9][0-9]*\) .*/\1/p')" -- "$word")
      ;;
    trace | diff | waits)
      case ${COMP_WORDS[COMP_CWORD - 1]} in
        --at | --from | --to)
          mapfile -t COMPREPLY < <(compgen -W "begin peak end" -- "$word")
          return
          ;;
        --debug-path)
          mapfile -t COMPREPLY < <(compgen -d -- "$word")
          return
          ;;
      esac
      local more="--at --for --dump --compress -o --markdown"
      [ "$verb" = diff ] && more="--from --to"
      [ "$verb" = waits ] && more=""
      mapfile -t COMPREPLY < <(compgen -W "$more --top --debug-path --help" -- "$word"; compgen -f -- "$word")
      ;;
    report)
      mapfile -t COMPREPLY < <(compgen -W "-o --text --pytorch --last --perfetto --pprof --speedscope --folded --csv --brief --debug-path --help" -- "$word"; compgen -f -- "$word")
      ;;
    replay | tune | fit)
      case ${COMP_WORDS[COMP_CWORD - 1]} in
        --set)
          mapfile -t COMPREPLY < <(compgen -S = -W "$(cupool options --all | sed -n 's/^CUPOOL_\([A-Z_]*\)=.*/\L\1/p')" -- "$word")
          compopt -o nospace 2> /dev/null
          return
          ;;
        --goal)
          mapfile -t COMPREPLY < <(compgen -W "memory speed" -- "$word")
          return
          ;;
      esac
      local words="--memory --lag --one-thread --json --help"
      [ "$verb" = replay ] && words="--set --gpu --play $words"
      [ "$verb" = tune ] && words="--goal $words"
      mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word"; compgen -f -- "$word")
      ;;
    options)
      mapfile -t COMPREPLY < <(compgen -W "--all --json --markdown --help $(cupool options --all | sed -n 's/^\(CUPOOL_[A-Z_]*\)=.*/\1/p')" -- "$word")
      ;;
    help)
      mapfile -t COMPREPLY < <(compgen -W "run doctor compare merge top trim trace report diff waits replay tune fit options help version" -- "$word")
      ;;
  esac
}
complete -F _cupool cupool
