package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// key identifies the result of building the module in dir: it changes with the
// sources, the pinned versions, the Go version and the flags.
func (p Part) key(dir, goVersion string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, goVersion, p.Packages, p.args(), p.env())
	// WalkDir goes in lexical order, so the same files give the same key.
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !matters(entry.Name()) {
			return err
		}
		return hashFile(hash, dir, path)
	})
	if err != nil {
		return "", fmt.Errorf("reading the sources of %s: %w", p.Name, err)
	}
	return hex.EncodeToString(hash.Sum(nil))[:12], nil
}

// matters excludes tests and editors' temporary files.
func matters(name string) bool {
	switch filepath.Ext(name) {
	case ".go":
		return !strings.HasSuffix(name, "_test.go")
	case ".mod", ".sum":
		return true
	}
	return false
}

func hashFile(hash io.Writer, dir, path string) error {
	relative, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	// The length separates the end of one file from the beginning of the next.
	fmt.Fprintln(hash, filepath.ToSlash(relative), len(content))
	_, err = hash.Write(content)
	return err
}
