package certs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	versionPrefix = "..v-"
	currentLink   = "..current"
	nextLink      = "..next"
)

// certificateDir is a directory whose files change atomically, as in a volume that the kubelet projects: each set of files has its
// own directory, and a symbolic link, which a rename replaces, points to the current set. So a reader never gets the certificate of
// one set with the key of another.
type certificateDir string

// writeFiles replaces the content of the directory. Writing the same files again changes nothing.
func (d certificateDir) writeFiles(files map[string][]byte) error {
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(hash, "%s %d\n", name, len(files[name]))
		hash.Write(files[name])
	}
	version := versionPrefix + hex.EncodeToString(hash.Sum(nil))[:16]
	if now, err := os.Readlink(d.pathOf(currentLink)); err == nil && now == version {
		return nil
	}
	if err := d.writeVersionDir(version, files); err != nil {
		return err
	}
	if err := d.switchCurrentLink(version); err != nil {
		return err
	}
	if err := d.linkFiles(files); err != nil {
		return err
	}
	return d.removeVersionsExcept(version)
}

func (d certificateDir) pathOf(elements ...string) string {
	return filepath.Join(append([]string{string(d)}, elements...)...)
}

func (d certificateDir) writeVersionDir(version string, files map[string][]byte) error {
	if err := os.MkdirAll(d.pathOf(version), 0o700); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(d.pathOf(version, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (d certificateDir) switchCurrentLink(version string) error {
	// A process that was killed here left a link.
	if err := os.Remove(d.pathOf(nextLink)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(version, d.pathOf(nextLink)); err != nil {
		return err
	}
	return os.Rename(d.pathOf(nextLink), d.pathOf(currentLink))
}

func (d certificateDir) linkFiles(files map[string][]byte) error {
	for name := range files {
		err := os.Symlink(filepath.Join(currentLink, name), d.pathOf(name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func (d certificateDir) removeVersionsExcept(version string) error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), versionPrefix) || entry.Name() == version {
			continue
		}
		if err := os.RemoveAll(d.pathOf(entry.Name())); err != nil {
			return fmt.Errorf("removing an old certificate: %w", err)
		}
	}
	return nil
}
