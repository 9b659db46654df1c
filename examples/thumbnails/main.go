// Command thumbnails is the worker of docs/tutorials/images-through-a-queue.md. The payload of a job is the name of a
// picture, and the worker writes a thumbnail of it. Both are files below the directory IMAGES, a volume that all workers
// share.
//
// The command upload is the producer: it draws pictures and sends a job for each.
//
//	thumbnails upload -url nats://nats.nats:4222 -pictures 100
package main

import (
	"context"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // decodes JPEG files
	"image/png"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path"
	"syscall"

	"github.com/yardmaster/yardmaster/worker"
)

const (
	thumbnailSize = 160 // pixels of the longer side
	// maxPixels limits the memory for a picture. A small file can contain a very large one.
	maxPixels = 40_000_000
)

func main() {
	if err := run(); err != nil {
		slog.Error("Thumbnails failed", "error", err)
		os.Exit(1)
	}
}

func run() error {
	directory, err := os.OpenRoot(os.Getenv("IMAGES")) // file names cannot leave it
	if err != nil {
		return fmt.Errorf("opening the directory IMAGES: %w", err)
	}
	defer directory.Close()
	if len(os.Args) > 1 && os.Args[1] == "upload" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return upload(ctx, directory, os.Args[2:])
	}
	options, err := worker.FromEnvironment()
	if err != nil {
		return err
	}
	return worker.Run(context.Background(), options, func(_ context.Context, job *worker.Job) error {
		return makeThumbnail(directory, string(job.Payload))
	})
}

// makeThumbnail writes thumbnails/NAME for uploads/NAME. Other attempts fail like this one if the picture cannot be
// decoded, so the job becomes a dead letter; any other error is retried.
func makeThumbnail(directory *os.Root, name string) error {
	picture, err := readPicture(directory, path.Join("uploads", name))
	if err != nil {
		return err
	}
	// Delivery is at least once: two workers may make the same thumbnail. A rename replaces a file as a whole.
	target := path.Join("thumbnails", name)
	temporary := target + ".part"
	if err := directory.MkdirAll(path.Dir(target), 0o755); err != nil {
		return err
	}
	file, err := directory.Create(temporary)
	if err != nil {
		return err
	}
	if err := errors.Join(png.Encode(file, scale(picture)), file.Close()); err != nil {
		return err
	}
	return directory.Rename(temporary, target)
}

func readPicture(directory *os.Root, name string) (image.Image, error) {
	file, err := directory.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, worker.DeadLetter("there is no file " + name)
	case err != nil:
		return nil, err
	}
	defer file.Close()
	config, _, err := image.DecodeConfig(file)
	switch {
	case err != nil:
		return nil, worker.DeadLetter(name + " is not a picture: " + err.Error())
	case config.Width*config.Height > maxPixels:
		return nil, worker.DeadLetter(fmt.Sprintf("%s has %d × %d pixels, more than %d", name, config.Width, config.Height, maxPixels))
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	picture, _, err := image.Decode(file)
	if err != nil {
		return nil, worker.DeadLetter(name + " is incomplete: " + err.Error())
	}
	return picture, nil
}

// scale returns the picture with at most thumbnailSize pixels in each direction.
func scale(picture image.Image) image.Image {
	from := picture.Bounds()
	longer := max(from.Dx(), from.Dy(), thumbnailSize)
	to := image.Rect(0, 0, max(1, from.Dx()*thumbnailSize/longer), max(1, from.Dy()*thumbnailSize/longer))
	thumbnail := image.NewRGBA(to)
	for y := range to.Dy() {
		for x := range to.Dx() {
			thumbnail.Set(x, y, picture.At(from.Min.X+x*from.Dx()/to.Dx(), from.Min.Y+y*from.Dy()/to.Dy()))
		}
	}
	return thumbnail
}
