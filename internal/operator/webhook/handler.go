package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/yardmaster/yardmaster/internal/kube/metric"
	"github.com/yardmaster/yardmaster/internal/pod/listener"
)

const (
	// maxReviewBytes is the maximum size of a review. etcd stores objects of up to 1.5 MiB, and a review of an update contains two.
	maxReviewBytes = 4 << 20
	// smallReviewBytes is the maximum size of a review that never waits for larger reviews.
	smallReviewBytes = 128 << 10
	// maxReviewMemory is the maximum of memoryToDecode of a review.
	maxReviewMemory = 100 << 20
	// smallReviewMemory is the maximum of memoryToDecode for reviews that never wait for larger reviews.
	smallReviewMemory = 4 << 20
)

// The reasons of refused requests, as labels of the metric.
const (
	reasonPath        = "path"
	reasonSize        = "size"
	reasonBusy        = "busy"
	reasonIncomplete  = "incomplete"
	reasonConnections = "connections"
)

var refused = metric.NewCounterVec("yardmaster_webhook_refused_requests_total",
	"Requests and connections that the webhook server refused without a review, by reason.", "reason")

// handle serves a request if its path, its size and the memory in use allow it.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	hook := s.webhookFor(r)
	if hook == nil {
		refuse(w, reasonPath, http.StatusNotFound, "404 page not found")
		return
	}
	listener.Prove(r.Context())
	if s.leaving.Load() {
		w.Header().Set("Connection", "close")
	}
	switch {
	case r.ContentLength < 0:
		refuse(w, reasonSize, http.StatusLengthRequired, "a review must be sent with a Content-Length")
		return
	case r.ContentLength > maxReviewBytes:
		refuse(w, reasonSize, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the review has %d bytes, more than %d: make the object smaller", r.ContentLength, maxReviewBytes))
		return
	}
	timeout := s.limits.review
	// The time that the API server waits for the response.
	if requested, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && requested > 0 {
		timeout = min(requested, timeout)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	s.review(w, r.WithContext(ctx), hook)
}

// webhookFor returns the webhook at the path of a request; nil unless the path is valid.
func (s *Server) webhookFor(r *http.Request) http.Handler {
	current, err := s.files.current(time.Now())
	if err != nil {
		return nil
	}
	path, valid := current.route(r.URL.Path)
	hook, pattern := s.mux.Handler(&http.Request{Method: http.MethodPost, URL: &url.URL{Path: path}})
	if !valid || pattern != path {
		return nil
	}
	return hook
}

// review reads the body and calls the webhook, as soon as there is memory for each.
func (s *Server) review(w http.ResponseWriter, r *http.Request, hook http.Handler) {
	release, err := s.reading.acquire(r.Context(), r.ContentLength)
	if err != nil {
		refuseBusy(w)
		return
	}
	defer release()
	body, err := readBody(w, r)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		refuse(w, reasonIncomplete, http.StatusRequestTimeout, "the review did not arrive within its timeout")
		return
	case err != nil:
		refuse(w, reasonIncomplete, http.StatusBadRequest, "the review is incomplete")
		return
	}
	memory := memoryToDecode(body)
	if memory > s.decoding.largeTotal {
		refuse(w, reasonSize, http.StatusRequestEntityTooLarge, "the review contains too many JSON objects: make the object smaller")
		return
	}
	release, err = s.decoding.acquire(r.Context(), memory)
	if err != nil {
		refuseBusy(w)
		return
	}
	defer release()
	r.Body = io.NopCloser(bytes.NewReader(body))
	hook.ServeHTTP(w, r)
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if deadline, found := r.Context().Deadline(); found {
		if err := http.NewResponseController(w).SetReadDeadline(deadline); err != nil {
			return nil, err
		}
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// memoryToDecode returns an upper bound on the memory that a review occupies while it is decoded. A short JSON object such as {} can
// become a large Go value, such as a container, and an empty string needs 16 bytes. Lists are copied while they grow.
func memoryToDecode(body []byte) int64 {
	const perByte, perObject = 24, 3 << 10
	return perByte*int64(len(body)) + perObject*int64(bytes.Count(body, []byte("{")))
}

func refuseBusy(w http.ResponseWriter) {
	refuse(w, reasonBusy, http.StatusServiceUnavailable, "the operator is handling too many large reviews: try again")
}

// refuse responds without reading the body, and closes the connection.
func refuse(w http.ResponseWriter, reason string, status int, message string) {
	refused.WithLabelValues(reason).Inc()
	w.Header().Set("Connection", "close")
	http.Error(w, message, status)
}

// budget bounds the memory that is in use at the same time. Small requests have their own share, so that they do not wait for large
// requests.
type budget struct {
	smallLimit, largeTotal int64
	small, large           *semaphore.Weighted
}

// newBudget returns a budget in which requests of up to smallLimit bytes share smallTotal bytes, and all others largeTotal bytes.
func newBudget(smallLimit, smallTotal, largeTotal int64) budget {
	return budget{
		smallLimit: smallLimit, largeTotal: largeTotal,
		small: semaphore.NewWeighted(smallTotal), large: semaphore.NewWeighted(largeTotal),
	}
}

// acquire waits for memory for size bytes, until ctx ends. The caller must call release.
func (b budget) acquire(ctx context.Context, size int64) (release func(), err error) {
	share := b.large
	if size <= b.smallLimit {
		share = b.small
	}
	if err := share.Acquire(ctx, size); err != nil {
		return nil, err
	}
	return func() { share.Release(size) }, nil
}
