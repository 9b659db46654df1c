package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// Files that programs expect on any machine, and that an image from scratch lacks.
const (
	passwd = "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
	group  = "root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n"
)

// layer returns a tar with the files, the directories above them, and the few
// things that every image has. Owners and times are always the same.
func layer(files []File) ([]byte, error) {
	var buffer bytes.Buffer
	w := writer{tar: tar.NewWriter(&buffer), made: map[string]bool{}}
	if err := w.directory("/tmp", 0o1777); err != nil {
		return nil, err
	}
	for name, content := range map[string]string{"/etc/passwd": passwd, "/etc/group": group} {
		if !slices.ContainsFunc(files, func(f File) bool { return f.Path == name }) {
			files = append(files, File{Path: name, Mode: 0o644, content: content})
		}
	}
	files = slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	for _, file := range files {
		if err := w.file(file); err != nil {
			return nil, fmt.Errorf("adding %s: %w", file.Path, err)
		}
	}
	if err := w.tar.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

type writer struct {
	tar  *tar.Writer
	made map[string]bool // directories
}

func (w writer) directory(dir string, mode int64) error {
	if dir == "/" || w.made[dir] {
		return nil
	}
	if err := w.directory(path.Dir(dir), 0o755); err != nil {
		return err
	}
	w.made[dir] = true
	return w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: mode})
}

func (w writer) file(file File) error {
	if err := w.directory(path.Dir(file.Path), 0o755); err != nil {
		return err
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: file.Path[1:], Mode: file.Mode}
	if file.Link != "" {
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, file.Link, 0o777
		return w.tar.WriteHeader(header)
	}
	content := []byte(file.content)
	if file.Source != "" {
		var err error
		if content, err = os.ReadFile(file.Source); err != nil {
			return err
		}
	}
	header.Size = int64(len(content))
	if err := w.tar.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(w.tar, bytes.NewReader(content))
	return err
}
