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

// The files of a certificate directory, as kubernetes.io/tls Secrets name them.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
	caFile   = "ca.crt"
)

const (
	versionPrefix = "..v-"
	current       = "..current"
	next          = "..next"
)

// dir is a directory whose files change all at once, as in a volume the kubelet
// projects: each set of files is a directory of its own, and one symbolic link, which
// a rename replaces, says which of them is current. A reader never meets the
// certificate of one set with the key of another.
type dir string

// write makes files the directory's content. Writing the same again changes nothing.
func (d dir) write(files map[string][]byte) error {
	version := versionOf(files)
	if now, err := os.Readlink(d.path(current)); err == nil && now == version {
		return nil
	}
	if err := d.writeVersion(version, files); err != nil {
		return err
	}
	if err := d.makeCurrent(version); err != nil {
		return err
	}
	if err := d.link(files); err != nil {
		return err
	}
	return d.removeVersionsExcept(version)
}

func (d dir) path(elements ...string) string {
	return filepath.Join(append([]string{string(d)}, elements...)...)
}

func (d dir) writeVersion(version string, files map[string][]byte) error {
	if err := os.MkdirAll(d.path(version), 0o700); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(d.path(version, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (d dir) makeCurrent(version string) error {
	// A link left by a process that was killed right here would be in the way.
	if err := os.Remove(d.path(next)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(version, d.path(next)); err != nil {
		return err
	}
	return os.Rename(d.path(next), d.path(current))
}

// link puts each file's name into the directory itself, once.
func (d dir) link(files map[string][]byte) error {
	for name := range files {
		err := os.Symlink(filepath.Join(current, name), d.path(name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func (d dir) removeVersionsExcept(version string) error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), versionPrefix) || entry.Name() == version {
			continue
		}
		if err := os.RemoveAll(d.path(entry.Name())); err != nil {
			return fmt.Errorf("removing an old certificate: %w", err)
		}
	}
	return nil
}

// versionOf names a set of files by what is in them.
func versionOf(files map[string][]byte) string {
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(hash, "%s %d\n", name, len(files[name]))
		hash.Write(files[name])
	}
	return versionPrefix + hex.EncodeToString(hash.Sum(nil))[:16]
}
