// Package image builds container images without Docker and without a registry:
// one layer of given files, from scratch. The same input gives the same bytes.
package image

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"path"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image describes the content of an image.
type Image struct {
	Tag        string
	Files      []File
	Entrypoint []string
	Command    []string
	User       string
	Env        []string
	// Architecture of the programs, as in GOARCH. Empty means that of this machine.
	Architecture string
}

// File is a file of the machine, or with Link a symbolic link.
type File struct {
	Source string
	Link   string
	Path   string
	Mode   int64

	content string // instead of a source
}

// ParseFile reads SOURCE:/path[:mode]. The mode is octal; without one the file
// is executable, as most of them are programs.
func ParseFile(text string) (File, error) {
	fields := strings.Split(text, ":")
	file := File{Mode: 0o755}
	if len(fields) < 2 || len(fields) > 3 || fields[0] == "" || !path.IsAbs(fields[1]) {
		return File{}, fmt.Errorf("%q is not SOURCE:/path[:mode]", text)
	}
	file.Source, file.Path = fields[0], path.Clean(fields[1])
	if len(fields) == 3 {
		if _, err := fmt.Sscanf(fields[2], "%o", &file.Mode); err != nil || file.Mode > 0o7777 {
			return File{}, fmt.Errorf("%q is not an octal mode", fields[2])
		}
	}
	return file, nil
}

// Write writes the image to a tar file that docker load, ctr images import and
// localcluster load-image read.
func Write(to string, image Image) error {
	tag, err := name.NewTag(image.Tag)
	if err != nil {
		return fmt.Errorf("the image's tag: %w", err)
	}
	content, err := layer(image.Files)
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		return fmt.Errorf("building the layer: %w", err)
	}
	made, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return fmt.Errorf("adding the layer: %w", err)
	}
	made, err = configure(made, image)
	if err != nil {
		return fmt.Errorf("configuring the image: %w", err)
	}
	if err := tarball.WriteToFile(to, tag, made); err != nil {
		return fmt.Errorf("writing %s: %w", to, err)
	}
	return nil
}

func configure(made v1.Image, image Image) (v1.Image, error) {
	config, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = cmp.Or(image.Architecture, runtime.GOARCH), "linux"
	config.Config = v1.Config{
		Entrypoint: image.Entrypoint,
		Cmd:        image.Command,
		User:       image.User,
		Env:        append([]string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}, image.Env...),
	}
	return mutate.ConfigFile(made, config)
}
