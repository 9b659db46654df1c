package main

import (
	"image"
	"image/png"
	"os"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func openDirectory(t *testing.T) *os.Root {
	t.Helper()
	directory, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { _ = directory.Close() })
	require.NoError(t, directory.Mkdir("uploads", 0o755))
	return directory
}

func TestThumbnailHasTheProportionsOfItsPicture(t *testing.T) {
	directory := openDirectory(t)
	require.NoError(t, draw(directory, "uploads/a.png", 1))
	for range 2 { // a job can be delivered twice
		require.NoError(t, makeThumbnail(directory, "a.png"))
	}
	file, err := directory.Open("thumbnails/a.png")
	require.NoError(t, err)
	defer file.Close()
	thumbnail, err := png.Decode(file)
	require.NoError(t, err)
	require.Equal(t, image.Pt(160, 100), thumbnail.Bounds().Size())
}

func TestFileThatIsNotAPictureBecomesADeadLetter(t *testing.T) {
	directory := openDirectory(t)
	require.NoError(t, directory.WriteFile("uploads/notes.txt", []byte("notes"), 0o600))
	for name, want := range map[string]string{"notes.txt": "is not a picture", "missing.png": "there is no file", "../../secret": ""} {
		require.ErrorContains(t, makeThumbnail(directory, name), want)
	}
}
