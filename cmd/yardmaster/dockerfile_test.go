package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What an image is built of is listed in .dockerignore, and in the Dockerfile of the
// operator: a package that is not there would only be missed where there is Docker.
func TestTheImagesAreGivenAllThatTheirProgramsAreMadeOf(t *testing.T) {
	const root = "../.."
	allowed := read(t, filepath.Join(root, ".dockerignore"))
	copied := read(t, filepath.Join(root, "Dockerfile"))
	for program, recipe := range map[string]string{
		"./cmd/yardmaster":  copied,
		"./examples/worker": "", // its recipe copies all that is allowed
		"./test/loadgen":    "",
	} {
		for _, directory := range directoriesOf(t, root, program) {
			if !strings.Contains(allowed, "!"+directory+"/**/*.go\n") {
				t.Errorf("%s is made of %s, which .dockerignore keeps away", program, directory)
			}
			if recipe != "" && !strings.Contains(recipe, "COPY "+directory+"/ "+directory+"/\n") {
				t.Errorf("%s is made of %s, which the Dockerfile does not copy", program, directory)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// directoriesOf a program are those of the module, at its top, that it is made of. Of hack
// only what lies below it can be told apart.
func directoriesOf(t *testing.T, root, program string) []string {
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
		path, ours := strings.CutPrefix(strings.TrimSpace(path), module)
		if !ours {
			continue
		}
		parts := strings.Split(path, "/")
		directory := parts[0]
		if directory == "hack" {
			directory += "/" + parts[1]
		}
		if !seen[directory] {
			seen[directory], directories = true, append(directories, directory)
		}
	}
	if len(directories) == 0 {
		t.Fatalf("%s is made of nothing", program)
	}
	return directories
}
