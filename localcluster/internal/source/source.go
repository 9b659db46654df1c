// Package source finds the sources that localcluster builds the cluster from:
// the module it was itself built from, which holds modules/<part>.
//
// They cannot be embedded: go:embed excludes directories with a go.mod.
package source

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const module = "github.com/yardmaster/yardmaster/localcluster"

// Variable is the environment variable that overrides the sources' directory.
const Variable = "LOCALCLUSTER_SOURCE"

// Locate returns the directory of the localcluster module.
func Locate() (string, error) {
	if dir := os.Getenv(Variable); dir != "" {
		if !holdsModule(dir) {
			return "", fmt.Errorf("%s=%s is not the directory of %s", Variable, dir, module)
		}
		return filepath.Abs(dir)
	}
	for _, start := range starts() {
		if dir, found := search(start); found {
			return dir, nil
		}
	}
	return "", errors.New("cannot find the sources of localcluster: run it inside the repository, or set " + Variable + " to the repository's localcluster directory")
}

// starts are the directories to search upwards from: where the program lies
// (bin/ of a checkout), where it was compiled (go run), where it is run.
func starts() []string {
	var dirs []string
	if executable, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Dir(executable))
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		dirs = append(dirs, filepath.Dir(file))
	}
	if dir, err := os.Getwd(); err == nil {
		dirs = append(dirs, dir)
	}
	return dirs
}

// search checks dir, each directory above it, and their subdirectory localcluster.
func search(dir string) (string, bool) {
	for {
		for _, candidate := range []string{dir, filepath.Join(dir, "localcluster")} {
			if holdsModule(candidate) {
				return candidate, true
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

func holdsModule(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "go.mod"))
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, found := strings.CutPrefix(lines.Text(), "module "); found {
			return strings.TrimSpace(name) == module
		}
	}
	return false
}
