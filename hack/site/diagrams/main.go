// diagrams draws the diagrams of a built documentation site, so that its pages need no script to show them:
//
//	diagrams DIRECTORY MERMAID
//
// MERMAID is the file mermaid.min.js. The layouts leave a placeholder for each diagram, next to its source. Chromium runs Mermaid once
// for all of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: diagrams DIRECTORY MERMAID")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "drawing the diagrams:", err)
		os.Exit(1)
	}
}

// run draws the diagrams of all pages in the directory.
func run(directory, mermaid string) error {
	pages, err := readPages(os.DirFS(directory))
	if err != nil {
		return err
	}
	script, err := os.ReadFile(mermaid)
	if err != nil {
		return err
	}
	var sources []string
	for _, p := range pages {
		sources = append(sources, p.sources...)
	}
	if len(sources) == 0 {
		return errors.New("no page has a diagram, so the layouts or this program have to change")
	}
	dump, err := browse(drawingPage(string(script), sources))
	if err != nil {
		return err
	}
	drawings, err := readDrawings(dump, len(sources))
	if err != nil {
		return err
	}
	bytes := 0
	for _, p := range pages {
		own := drawings[:len(p.sources)]
		drawings = drawings[len(p.sources):]
		drawn, err := p.insert(own)
		if err != nil {
			return err
		}
		bytes += len(drawn) - len(p.html)
		if err := os.WriteFile(filepath.Join(directory, filepath.FromSlash(p.name)), []byte(drawn), 0o600); err != nil {
			return err
		}
	}
	fmt.Printf("%d diagrams on %d pages are drawn, with %d kB\n", len(sources), len(pages), bytes/1000)
	return nil
}

// readPages returns the pages with diagrams.
func readPages(site fs.FS) ([]page, error) {
	var pages []page
	err := fs.WalkDir(site, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".html" {
			return err
		}
		content, err := fs.ReadFile(site, name)
		if err != nil {
			return err
		}
		p, err := parsePage(name, string(content))
		if err != nil {
			return err
		}
		if len(p.sources) > 0 {
			pages = append(pages, p)
		}
		return nil
	})
	return pages, err
}

// browseTimeout ends a browser that hangs.
const browseTimeout = 5 * time.Minute

// browse opens a page in Chromium, which runs its scripts, and returns its HTML afterwards.
func browse(content string) (string, error) {
	directory, err := os.MkdirTemp("", "diagrams-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(directory)
	file := filepath.Join(directory, "diagrams.html")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), browseTimeout)
	defer cancel()
	// Chromium's sandbox does not run as root or in containers. The only page that it opens is ours.
	browser := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+filepath.Join(directory, "profile"),
		"--virtual-time-budget=60000", "--dump-dom", "file://"+file)
	var problems strings.Builder
	browser.Stderr = &problems
	output, err := browser.Output()
	if err != nil {
		return "", fmt.Errorf("running Chromium: %w\n%s", err, problems.String())
	}
	return string(output), nil
}
