package worker

import (
	"cmp"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
)

// reportBoard has the jobs that run and report their state, and the requests to cancel jobs.
type reportBoard struct {
	mu        sync.Mutex
	recorders map[string]*stateRecorder
	running   map[jobName]map[*attemptReport]struct{}
	requests  map[jobName]cancelRequest
	// sweepTime is when expired requests were last removed.
	sweepTime time.Time
}

// jobName identifies a job. After a lost lease, two deliveries may have the same name.
type jobName struct{ queue, id string }

// cancelRequest applies until its expiry.
type cancelRequest struct {
	jobstate.Cancel

	expiry time.Time
}

func (b *reportBoard) setRecorder(queue string, recorder *stateRecorder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.recorders == nil {
		b.recorders = map[string]*stateRecorder{}
	}
	b.recorders[queue] = recorder
}

func (b *reportBoard) recorderOf(queue string) *stateRecorder {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recorders[queue]
}

// add makes the job cancelable, and cancels it if its cancellation was requested.
func (b *reportBoard) add(r *attemptReport) {
	b.mu.Lock()
	name := jobName{r.job.Queue, r.job.ID}
	if b.running == nil {
		b.running = map[jobName]map[*attemptReport]struct{}{}
	}
	if b.running[name] == nil {
		b.running[name] = map[*attemptReport]struct{}{}
	}
	b.running[name][r] = struct{}{}
	request, isRequested := b.requests[name]
	b.mu.Unlock()
	if isRequested && r.w.now().Before(request.expiry) && request.Applies(r.job.SentTime) {
		r.requestCancel()
	}
}

func (b *reportBoard) remove(r *attemptReport) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := jobName{r.job.Queue, r.job.ID}
	delete(b.running[name], r)
	if len(b.running[name]) == 0 {
		delete(b.running, name)
	}
}

const sweepInterval = time.Minute

// requestCancel cancels the job if it runs here, or else when it starts.
func (b *reportBoard) requestCancel(queue, id string, request jobstate.Cancel, retention time.Duration, now time.Time) {
	b.mu.Lock()
	name := jobName{queue, id}
	if b.requests == nil {
		b.requests = map[jobName]cancelRequest{}
	}
	b.requests[name] = cancelRequest{request, now.Add(cmp.Or(request.ValidFor, retention))}
	if now.Sub(b.sweepTime) > sweepInterval {
		b.sweepTime = now
		for name, request := range b.requests {
			if now.After(request.expiry) {
				delete(b.requests, name)
			}
		}
	}
	var running []*attemptReport
	for r := range b.running[name] {
		running = append(running, r)
	}
	b.mu.Unlock()
	for _, r := range running {
		if request.Applies(r.job.SentTime) {
			r.requestCancel()
		}
	}
}

// forgetCancel reports whether there was a request to cancel the job.
func (b *reportBoard) forgetCancel(queue, id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := jobName{queue, id}
	_, found := b.requests[name]
	delete(b.requests, name)
	return found
}
