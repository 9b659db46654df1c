package main

import (
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// upload draws pictures, and sends a job for each. One more file is not a picture.
func upload(ctx context.Context, directory *os.Root, args []string) error {
	flags := flag.NewFlagSet("upload", flag.ContinueOnError)
	url := flags.String("url", nats.DefaultURL, "URL of the NATS server")
	queue := flags.String("queue", "thumbnails", "name of the queue on the server, as in status.name of the Queue")
	pictures := flags.Int("pictures", 100, "number of pictures")
	if err := flags.Parse(args); err != nil {
		return err
	}
	connection, err := nats.Connect(*url)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", *url, err)
	}
	defer connection.Close()
	stream, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	send := func(name string) error {
		// The ID makes the server ignore the same job, if it is sent again within two minutes.
		_, err := stream.Publish(ctx, "yardmaster."+*queue+".ready.default", []byte(name), jetstream.WithMsgID(name))
		return err
	}
	if err := directory.MkdirAll("uploads", 0o755); err != nil {
		return err
	}
	names := []string{"notes.txt"}
	if err := directory.WriteFile("uploads/notes.txt", []byte("not a picture"), 0o600); err != nil {
		return err
	}
	for number := range *pictures {
		name := fmt.Sprintf("picture-%d.png", number)
		if err := draw(directory, "uploads/"+name, number); err != nil {
			return err
		}
		names = append(names, name)
	}
	for _, name := range names {
		if err := send(name); err != nil {
			return err
		}
	}
	slog.Info("Sent the jobs", "jobs", len(names))
	return nil
}

// draw writes a picture whose colors depend on the number.
func draw(directory *os.Root, name string, number int) error {
	picture := image.NewRGBA(image.Rect(0, 0, 1600, 1000))
	for y := range picture.Rect.Dy() {
		for x := range picture.Rect.Dx() {
			picture.SetRGBA(x, y, color.RGBA{R: uint8(x * y), G: uint8(x + number), B: uint8(y), A: 0xff}) //nolint:gosec // the colors may wrap around
		}
	}
	file, err := directory.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := encoder.Encode(file, picture); err != nil {
		return err
	}
	return file.Close()
}
