package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The directories of an image's sources are listed in .dockerignore and in the operator's
// Dockerfile. A missing one would otherwise fail only where Docker builds the image.
func TestImagesContainTheSourcesOfTheirPrograms(t *testing.T) {
	const root = "../.."
	allowed := readFile(t, filepath.Join(root, ".dockerignore"))
	copied := readFile(t, filepath.Join(root, "Dockerfile"))
	for program, recipe := range map[string]string{
		"./cmd/yardmaster":     copied,
		"./cmd/session-runner": copied,
		"./examples/worker":    "", // its Dockerfile copies everything that .dockerignore allows
		"./test/loadgen":       "",
	} {
		for _, file := range embeddedFiles(t, root, program) {
			if pattern := "!" + filepath.Dir(file) + "/*" + filepath.Ext(file) + "\n"; !strings.Contains(allowed, pattern) {
				t.Errorf("%s needs %s, which .dockerignore excludes", program, file)
			}
		}
		for _, directory := range packageDirectories(t, root, program) {
			if !strings.Contains(allowed, "!"+directory+"/**/*.go\n") {
				t.Errorf("%s needs %s, which .dockerignore excludes", program, directory)
			}
			if recipe != "" && !strings.Contains(recipe, "COPY "+directory+"/ "+directory+"/\n") {
				t.Errorf("%s needs %s, which the Dockerfile does not copy", program, directory)
			}
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// packageDirectories returns the top-level directories of a program's packages. For test, it
// returns the directories below it.
func packageDirectories(t *testing.T, root, program string) []string {
	t.Helper()
	const module = "github.com/yardmaster/yardmaster/"
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", program)
	list.Dir = root
	output, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	seen, directories := map[string]bool{}, []string(nil)
	for path := range strings.Lines(string(output)) {
		path, found := strings.CutPrefix(strings.TrimSpace(path), module)
		if !found {
			continue
		}
		parts := strings.Split(path, "/")
		directory := parts[0]
		if directory == "test" {
			directory += "/" + parts[1]
		}
		if !seen[directory] {
			seen[directory], directories = true, append(directories, directory)
		}
	}
	if len(directories) == 0 {
		t.Fatalf("%s needs no directory of this module", program)
	}
	return directories
}

// embeddedFiles returns the files of this module that a program contains.
func embeddedFiles(t *testing.T, root, program string) []string {
	t.Helper()
	const format = `{{if eq .Module.Path "github.com/yardmaster/yardmaster"}}{{range .EmbedFiles}}{{$.ImportPath}}/{{.}}{{"\n"}}{{end}}{{end}}`
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{with $}}"+format+"{{end}}{{end}}", program)
	list.Dir = root
	output, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for path := range strings.Lines(string(output)) {
		if path, found := strings.CutPrefix(strings.TrimSpace(path), "github.com/yardmaster/yardmaster/"); found {
			files = append(files, path)
		}
	}
	return files
}
