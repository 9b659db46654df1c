// check fails if a link of a built documentation site leads nowhere, or if a page needs another server:
//
//	check DIRECTORY
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: check DIRECTORY")
		os.Exit(2)
	}
	site, err := read(os.DirFS(os.Args[1]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	problems := site.problems()
	for _, problem := range problems {
		fmt.Fprintln(os.Stderr, problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
	fmt.Printf("%d pages, %d links and %d sections of the search index are correct\n", len(site.pages), site.links(), len(site.index))
}
