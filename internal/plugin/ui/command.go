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

// commandResult is what a command printed.
type commandResult struct {
	output, errors []byte
	code           int
}

// problem is what the command printed on standard error if it failed.
func (r *commandResult) problem() string {
	const exitError = 2
	if r.code < exitError {
		return ""
	}
	return strings.TrimSpace(cleanLines(r.errors))
}

// cleanLines returns text without control characters.
func cleanLines(text []byte) string {
	var lines []string
	for line := range strings.SplitSeq(string(text), "\n") {
		lines = append(lines, view.CleanLogLine(line))
	}
	return strings.Join(lines, "\n")
}

// runCommand runs a command of the plugin.
func (s *Server) runCommand(ctx context.Context, args []string) *commandResult {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, errOut := &boundedBuffer{}, &boundedBuffer{}
	code := s.Run(ctx, args, http.NoBody, out, errOut)
	return &commandResult{output: out.Bytes(), errors: errOut.Bytes(), code: code}
}

// boundedBuffer is a buffer of limited size.
type boundedBuffer struct{ bytes.Buffer }

var errOutputTooLarge = errors.New("the output is too large for a page: use the command")

// Write implements io.Writer.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxOutputBytes {
		return 0, errOutputTooLarge
	}
	return b.Buffer.Write(p)
}
