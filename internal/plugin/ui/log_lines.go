package ui

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// The bounds of a log.
const (
	batchInterval = 100 * time.Millisecond
	maxBatchLines = 500
	maxLineBytes  = 16 << 10
)

// lineBatcher collects the lines of a log, so that a page gets many at once.
type lineBatcher struct {
	ctx     context.Context //nolint:containedctx // that of a stream, for writers without one
	batches chan []string

	mu sync.Mutex
	// notFull waits while the next batch is full.
	notFull *sync.Cond
	lines   []string
}

func newLineBatcher(ctx context.Context) *lineBatcher {
	b := &lineBatcher{ctx: ctx, batches: make(chan []string)}
	b.notFull = sync.NewCond(&b.mu)
	return b
}

// run sends the output of a function until it returns, and then that the log has ended.
func (b *lineBatcher) run(write func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		write()
	}()
	stop := context.AfterFunc(b.ctx, b.notFull.Broadcast)
	defer stop()
	ticker := time.NewTicker(batchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-ticker.C:
			b.flush()
		case <-ended:
			b.add("— the log ends here —")
			b.flush()
			return
		}
	}
}

func (b *lineBatcher) flush() {
	b.mu.Lock()
	lines := b.lines
	b.lines = nil
	b.notFull.Broadcast()
	b.mu.Unlock()
	if len(lines) == 0 {
		return
	}
	select {
	case b.batches <- lines:
	case <-b.ctx.Done():
	}
}

// add waits while the batch is full.
func (b *lineBatcher) add(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.lines) >= maxBatchLines && b.ctx.Err() == nil {
		b.notFull.Wait()
	}
	b.lines = append(b.lines, line)
}

// lineWriter adds the lines of a stream.
type lineWriter struct {
	batcher *lineBatcher
	rest    []byte
}

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	if err := w.batcher.ctx.Err(); err != nil {
		return 0, err
	}
	w.rest = append(w.rest, p...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte("\n"))
		if !found && len(w.rest) < maxLineBytes {
			return len(p), nil
		}
		if len(line) > maxLineBytes {
			line, rest = w.rest[:maxLineBytes], w.rest[maxLineBytes:]
		}
		w.batcher.add(view.CleanLogLine(string(line)))
		w.rest = rest
	}
}
