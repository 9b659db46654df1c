// Package prepull is what runs in the Pods that pull the images of a SessionRunner. Images need not contain any program, so
// the first container copies this one into a volume, from which the containers of the images run it.
package prepull

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// programMode lets the user of each image run the program.
const programMode = 0o755

// Run copies this program, or waits until SIGTERM, or does nothing, which shows that an image is there.
func Run(ctx context.Context, args []string, _ func(string) string, errOut io.Writer) error {
	f := flag.NewFlagSet("session-runner prepull", flag.ContinueOnError)
	f.SetOutput(errOut)
	directory := f.String("copy-to", "", "Directory to copy this program into.")
	wait := f.Bool("wait", false, "Wait until SIGTERM.")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *directory != "" {
		return copyProgram(filepath.Join(*directory, "session-runner"))
	}
	if *wait {
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
		defer stop()
		<-ctx.Done()
	}
	return nil
}

func copyProgram(to string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(self)
	if err != nil {
		return err
	}
	defer from.Close()
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, programMode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("copying the program: %w", err)
	}
	return nil
}
