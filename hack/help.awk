# Lists the targets of a Makefile that have a description, below their headings.
BEGIN { FS = ":.*## " }
/^##@/ { printf "\n\033[1m%s\033[0m\n", substr($0, 5) }
/^[a-z0-9-]+:.*## / { printf "  \033[36m%-18s\033[0m %s\n", $1, $2 }
