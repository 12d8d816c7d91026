# Checks that count themselves, for scripts to read in: what failed is printed.
# shellcheck shell=bash
passed=0
failed=0

# is WHAT GOT WANTED
is() {
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $1: '$2', not '$3'"
    fi
}

# has WHAT TEXT PART
has() {
    case "$2" in
    *"$3"*) passed=$((passed + 1)) ;;
    *)
        failed=$((failed + 1))
        echo "FAILED $1: no '$3' in: $2"
        ;;
    esac
}
