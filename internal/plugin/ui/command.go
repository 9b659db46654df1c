package ui

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// The bounds of a command.
const (
	commandTimeout = time.Minute
	maxOutputBytes = 32 << 20
)

type commandResult struct {
	output, errors []byte
	code           int
}

// problem is the command's standard error if it failed.
func (r *commandResult) problem() string {
	const exitError = 2
	if r.code < exitError {
		return ""
	}
	return strings.TrimSpace(cleanLines(r.errors))
}

func cleanLines(text []byte) string {
	var lines []string
	for line := range strings.SplitSeq(string(text), "\n") {
		lines = append(lines, view.CleanLogLine(line))
	}
	return strings.Join(lines, "\n")
}

func (s *Server) runCommand(ctx context.Context, args []string) *commandResult {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, errOut := &boundedBuffer{}, &boundedBuffer{}
	code := s.Run(ctx, args, http.NoBody, out, errOut)
	return &commandResult{output: out.Bytes(), errors: errOut.Bytes(), code: code}
}

type boundedBuffer struct{ bytes.Buffer }

var errOutputTooLarge = errors.New("the output is too large for a page: use the command")

// Write implements io.Writer.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxOutputBytes {
		return 0, errOutputTooLarge
	}
	return b.Buffer.Write(p)
}
