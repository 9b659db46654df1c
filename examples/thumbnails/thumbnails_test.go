package main

import (
	"image"
	"image/png"
	"os"
	"strings"
	"testing"
)

func openDirectory(t *testing.T) *os.Root {
	t.Helper()
	directory, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = directory.Close() })
	if err := directory.Mkdir("uploads", 0o755); err != nil {
		t.Fatal(err)
	}
	return directory
}

func TestThumbnailHasTheProportionsOfItsPicture(t *testing.T) {
	directory := openDirectory(t)
	if err := draw(directory, "uploads/a.png", 1); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a job can be delivered twice
		if err := makeThumbnail(directory, "a.png"); err != nil {
			t.Fatal(err)
		}
	}
	file, err := directory.Open("thumbnails/a.png")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	thumbnail, err := png.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	if size := thumbnail.Bounds().Size(); size != image.Pt(160, 100) {
		t.Errorf("the size is %v", size)
	}
}

func TestFileThatIsNotAPictureBecomesADeadLetter(t *testing.T) {
	directory := openDirectory(t)
	if err := directory.WriteFile("uploads/notes.txt", []byte("notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"notes.txt": "is not a picture", "missing.png": "there is no file"} {
		if err := makeThumbnail(directory, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := makeThumbnail(directory, "../../secret"); err == nil {
		t.Error("a file outside the directory was read")
	}
}
