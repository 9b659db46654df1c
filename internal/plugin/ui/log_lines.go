package ui

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// The bounds of a log.
const (
	batchInterval = 100 * time.Millisecond
	maxBatchLines = 500
	// maxLineBytes is how much of a line a page shows.
	maxLineBytes = 64 << 10
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
	// rest is the beginning of a line whose end was not written yet, and omitted the number of its further bytes.
	rest    []byte
	omitted int
}

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	if err := w.batcher.ctx.Err(); err != nil {
		return 0, err
	}
	for left := p; len(left) > 0; {
		part, rest, isEnd := bytes.Cut(left, []byte("\n"))
		kept := part[:min(len(part), maxLineBytes-len(w.rest))]
		w.rest, w.omitted, left = append(w.rest, kept...), w.omitted+len(part)-len(kept), rest
		if !isEnd {
			continue
		}
		line := view.CleanLogLine(string(w.rest))
		if w.omitted > 0 {
			line += fmt.Sprintf(" … %d more bytes: download the log", w.omitted)
		}
		w.batcher.add(line)
		w.rest, w.omitted = w.rest[:0], 0
	}
	return len(p), nil
}
