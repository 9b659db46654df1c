package cluster

import (
	"fmt"
	"os/exec"
	"path"
	"strings"

	"github.com/yardmaster/yardmaster/localcluster/internal/build"
	"github.com/yardmaster/yardmaster/localcluster/internal/component"
	"github.com/yardmaster/yardmaster/localcluster/internal/image"
	"github.com/yardmaster/yardmaster/localcluster/internal/prerequisite"
)

// defaultImages are those that every node has.
var defaultImages = []struct {
	name  string
	image func(build.Programs) (image.Image, error)
}{
	{"pause", pauseImage},
	{"busybox", busyboxImage},
}

func writeDefaultImages(l component.Layout, programs build.Programs) error {
	for _, each := range defaultImages {
		made, err := each.image(programs)
		if err == nil {
			err = image.Write(l.File(each.name+".tar"), made)
		}
		if err != nil {
			return fmt.Errorf("building the image %s: %w", each.name, err)
		}
	}
	return nil
}

func pauseImage(programs build.Programs) (image.Image, error) {
	return image.Image{
		Tag:        component.PauseImage,
		Files:      []image.File{{Source: programs.Path(build.Pause, "pause"), Path: "/pause", Mode: 0o755}},
		Entrypoint: []string{"/pause"},
		User:       "65535:65535",
	}, nil
}

// busyboxImage replaces the image that has this name elsewhere, so
// that the same manifests run on any cluster.
func busyboxImage(build.Programs) (image.Image, error) {
	busybox, err := prerequisite.Busybox()
	if err != nil {
		return image.Image{}, err
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return image.Image{}, fmt.Errorf("listing busybox's applets: %w", err)
	}
	files := []image.File{{Source: busybox, Path: "/bin/busybox", Mode: 0o755}}
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			files = append(files, image.File{Link: "busybox", Path: path.Join("/bin", applet)})
		}
	}
	return image.Image{Tag: "docker.io/library/busybox:1.37", Files: files, Command: []string{"sh"}}, nil
}
