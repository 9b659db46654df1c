package worker

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
)

const (
	maxProgressTextBytes = 128
	// maxReportedJobs bounds the number of jobs in the stats, which the operator reads every few seconds. Both bounds keep the stats below
	// 16 KiB, the maximum that the operator reads.
	maxReportedJobs = 10
)

// JobProgress is the progress of a running job.
type JobProgress struct {
	// Queue, ID, Kind and Attempt of the job. Texts have at most 128 bytes.
	Queue   string `json:"queue"`
	ID      string `json:"id"`
	Kind    string `json:"kind,omitempty"`
	Attempt int    `json:"attempt"`
	// Fraction of the job that is done, 0 to 1, and a text, which may be empty.
	Fraction float64 `json:"fraction"`
	Text     string  `json:"text,omitempty"`
	// StartTime is when the attempt started, and UpdateTime when its handler last called Progress.
	StartTime  time.Time `json:"startTime"`
	UpdateTime time.Time `json:"updateTime"`
}

// Progress records how far the job is: the fraction that is done, from 0 to 1, and a text of at most 128 bytes, which may
// be empty. Longer texts are truncated. The worker keeps the latest progress of each running job in its memory, and its
// admin API shows it to everyone who can connect. It sends nothing, so a handler may call Progress as often as it likes.
// After the end of ctx, which is the handler's context, Progress has no effect.
func (j *Job) Progress(ctx context.Context, fraction float64, text string) {
	if j.progress == nil || ctx.Err() != nil {
		return
	}
	if !(fraction >= 0) { // also not a number
		fraction = 0
	}
	r := j.progress
	// The first update adds the job to the board. A job without progress costs nothing.
	if r.latest.Swap(&progressUpdate{min(fraction, 1), truncateText(text), r.board.now()}) == nil {
		r.board.add(r)
	}
}

type progressUpdate struct {
	fraction float64
	text     string
	time     time.Time
}

// progressRecorder has the progress of one attempt. It is safe for concurrent use.
type progressRecorder struct {
	board     *progressBoard
	job       *Job
	startTime time.Time
	latest    atomic.Pointer[progressUpdate]
	// hasEnded: the attempt has ended, and a goroutine of its handler may still report progress.
	hasEnded atomic.Bool
}

func (r *progressRecorder) end() {
	r.hasEnded.Store(true) // before the check for an update, because add checks for the end after an update
	if r.latest.Load() != nil {
		r.board.remove(r)
	}
}

// progressBoard has the running jobs that reported their progress.
type progressBoard struct {
	now func() time.Time

	mu        sync.Mutex
	recorders map[*progressRecorder]struct{}
}

func (b *progressBoard) add(r *progressRecorder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.recorders == nil {
		b.recorders = map[*progressRecorder]struct{}{}
	}
	if !r.hasEnded.Load() {
		b.recorders[r] = struct{}{}
	}
}

func (b *progressBoard) remove(r *progressRecorder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.recorders, r)
}

// longest returns the progress of the jobs that have run for the longest, and how many more jobs there are.
func (b *progressBoard) longest() (jobs []JobProgress, omitted int) {
	b.mu.Lock()
	running := make([]*progressRecorder, 0, len(b.recorders))
	for r := range b.recorders {
		running = append(running, r)
	}
	b.mu.Unlock()
	slices.SortFunc(running, func(a, b *progressRecorder) int {
		return cmp.Or(a.startTime.Compare(b.startTime), cmp.Compare(a.job.ID, b.job.ID))
	})
	for _, r := range running[:min(len(running), maxReportedJobs)] {
		latest, job := r.latest.Load(), r.job
		jobs = append(jobs, JobProgress{
			Queue: job.Queue, ID: truncateText(job.ID), Kind: truncateText(job.Kind), Attempt: job.Attempt,
			Fraction: latest.fraction, Text: latest.text, StartTime: r.startTime, UpdateTime: latest.time,
		})
	}
	return jobs, len(running) - len(jobs)
}

// truncateText returns the beginning of a text as valid UTF-8 without control characters.
func truncateText(text string) string {
	text = text[:min(len(text), maxProgressTextBytes)]
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}
