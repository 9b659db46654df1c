package image

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/yardmaster/yardmaster/localcluster/internal/require"
)

func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("a program"), 0o600))
	return path
}

func TestTheSameFilesGiveTheSameImage(t *testing.T) {
	source := program(t)
	var images [2][]byte
	for i := range images {
		to := filepath.Join(t.TempDir(), "image.tar")
		err := Write(to, Image{Tag: "example.com/program:1", Files: []File{{Source: source, Path: "/program", Mode: 0o755}}, Entrypoint: []string{"/program"}})
		require.NoError(t, err)
		if images[i], err = os.ReadFile(to); err != nil {
			t.Fatal(err)
		}
	}
	require.True(t, bytes.Equal(images[0], images[1]), "two builds differ")
}

func TestImageConfiguresArchitectureUserEntrypointAndEnvironment(t *testing.T) {
	to := filepath.Join(t.TempDir(), "image.tar")
	err := Write(to, Image{
		Tag: "program:1", Files: []File{{Source: program(t), Path: "/bin/program", Mode: 0o755}},
		Entrypoint: []string{"/bin/program"}, User: "65532:65532", Env: []string{"A=b"}, Architecture: "riscv64",
	})
	require.NoError(t, err)
	image, err := tarball.ImageFromPath(to, nil)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	c := &config.Config
	isRun := slices.Equal(c.Entrypoint, []string{"/bin/program"}) && c.User == "65532:65532" && len(c.Env) == 2 && c.Env[1] == "A=b"
	require.True(t, config.Architecture == "riscv64" && isRun, "configuration %+v", config)
}

func TestParseFile(t *testing.T) {
	for text, want := range map[string]File{
		"bin/manager:/manager":   {Source: "bin/manager", Path: "/manager", Mode: 0o755},
		"config:/etc/config:644": {Source: "config", Path: "/etc/config", Mode: 0o644},
	} {
		got, err := ParseFile(text)
		require.True(t, err == nil && got == want, "%s: got %+v, %v", text, got, err)
	}
	for _, text := range []string{"", "a", "a:b", ":/b", "a:/b:rw", "a:/b:644:c", "a:/b:77777"} {
		if _, err := ParseFile(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
