// widths fails if a page of a built documentation site, or an image on it, is wider than the window, on a desktop or a phone:
//
//	widths DIRECTORY
//
// Chromium opens all pages, one after another, in a frame.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"
)

// maxTime ends a browser that hangs.
const maxTime = 10 * time.Minute

const measure = `<!doctype html><meta charset=utf-8><title>Widths</title><body><script>
(async () => {
	const problems = [];
	const frame = document.createElement("iframe");
	frame.height = 800;
	document.body.append(frame);
	for (const page of %s) {
		for (const width of [1280, 390]) {
			frame.width = width;
			frame.src = page;
			await new Promise((resolve) => frame.onload = resolve);
			const root = frame.contentDocument.documentElement;
			if (root.scrollWidth > root.clientWidth) problems.push(page + " is " + root.scrollWidth + " pixels wide in a window of " + width);
			for (const image of root.querySelectorAll("img")) {
				if (!image.naturalWidth || image.getBoundingClientRect().right > root.clientWidth) problems.push(page + ": " + image.src + " does not fit into a window of " + width);
			}
		}
	}
	const result = document.createElement("script");
	result.id = "problems";
	result.type = "application/json";
	result.textContent = JSON.stringify(problems).replaceAll("<", "\\u003c");
	document.body.append(result);
})();
</script>`

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: widths DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.DirFS(os.Args[1])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(site fs.FS) error {
	var pages []string
	err := fs.WalkDir(site, ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".html" {
			pages = append(pages, "/"+name)
		}
		return err
	})
	if err != nil {
		return err
	}
	list, err := json.Marshal(pages)
	if err != nil {
		return err
	}
	handler := http.NewServeMux()
	handler.Handle("/", http.FileServerFS(site))
	handler.HandleFunc("/widths", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, measure, list)
	})
	server := httptest.NewServer(handler)
	defer server.Close()
	profile, err := os.MkdirTemp("", "widths-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(profile)
	ctx, cancel := context.WithTimeout(context.Background(), maxTime)
	defer cancel()
	// Chromium's sandbox does not run as root or in containers. The pages are ours.
	dump, err := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+profile, "--hide-scrollbars",
		"--timeout=600000", "--virtual-time-budget=600000", "--dump-dom", server.URL+"/widths").Output()
	if err != nil {
		return fmt.Errorf("running Chromium: %w", err)
	}
	_, result, found := strings.Cut(string(dump), `<script id="problems" type="application/json">`)
	result, _, _ = strings.Cut(result, "</script>")
	var problems []string
	if err := json.Unmarshal([]byte(result), &problems); !found || err != nil {
		return errors.New("the browser did not measure all pages")
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	fmt.Printf("%d pages and their images fit into windows of 1280 and 390 pixels\n", len(pages))
	return nil
}
