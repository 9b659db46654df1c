package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
	"github.com/yardmaster/yardmaster/internal/pod/listener"
)

const (
	// handleTimeout bounds the handling of a request, and sendTimeout the broker's part of it.
	handleTimeout = 20 * time.Second
	sendTimeout   = 10 * time.Second
	// manyFactor is how much larger the body of a request with many jobs may be.
	manyFactor = 4
	// memoryFactor is how many bytes a request occupies for each byte of its body: the body, the jobs that were decoded from it, and
	// the messages to the broker.
	memoryFactor = 3
	// requestBytes is the memory of a request without its body.
	requestBytes = 32 << 10
)

// Limits of the memory and the requests of one namespace, and of all namespaces.
var (
	eachNamespace = amount{requests: 32, bytes: 32 << 20}
	allNamespaces = amount{requests: 256, bytes: 96 << 20}
)

// newRequestShares returns limits that admit at least one request of the maximum size of one namespace, and of three namespaces.
func newRequestShares(maxBody int64) *shares {
	each, all := eachNamespace, allNamespaces
	each.bytes = max(each.bytes, requestBytes+memoryFactor*manyFactor*maxBody)
	all.bytes = max(all.bytes, 3*each.bytes)
	return newShares("requests", each, all)
}

type handler struct {
	reviewer *reviewer
	queues   *queues
	shares   *shares
	metrics  *metrics
	log      *slog.Logger
	maxBody  int64
	now      func() time.Time
}

// call is a request about the jobs of a Queue.
type call struct {
	*handler

	request          *http.Request
	namespace, queue string
	maxBody          int64

	// The fields below are set for an authorized call: the connection to the broker of the Queue, and the name of the queue there.
	conn        *brokerconn.Conn
	producer    broker.Producer
	brokerQueue string
}

type response struct {
	status int
	body   any
}

func (h *handler) routes() http.Handler {
	mux := http.NewServeMux()
	for _, prefix := range []string{"/namespaces/{namespace}", ""} {
		jobs := prefix + "/queues/{queue}/jobs"
		mux.HandleFunc("POST "+jobs, h.serve("create", h.maxBody, (*call).send))
		mux.HandleFunc("POST "+jobs+"/many", h.serve("create", manyFactor*h.maxBody, (*call).sendMany))
		mux.HandleFunc("DELETE "+jobs+"/{id...}", h.serve("delete", 0, (*call).cancel))
		mux.HandleFunc(jobs, h.wrongMethod("POST"))
		mux.HandleFunc(jobs+"/{id...}", h.wrongMethod("DELETE"))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		h.refuse(w, fail(http.StatusNotFound, reasonNotFound, "there is nothing at this path: use POST /namespaces/NAMESPACE/queues/QUEUE/jobs"))
	})
	return mux
}

func (h *handler) wrongMethod(allowed string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", allowed)
		h.refuse(w, fail(http.StatusMethodNotAllowed, reasonMethodNotAllowed, "the method must be "+allowed))
	}
}

func (h *handler) refuse(w http.ResponseWriter, f *failure) {
	h.metrics.requests.WithLabelValues(strconv.Itoa(f.status), f.Reason).Inc()
	if f.status == http.StatusTooManyRequests || f.status == http.StatusServiceUnavailable { // the same request may succeed later
		w.Header().Set("Retry-After", strconv.Itoa(retrySeconds))
	}
	if f.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, f.status, f)
}

// serve returns a handler of calls that need a verb.
func (h *handler) serve(verb string, maxBody int64, handle func(*call, context.Context) (response, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		start := h.now()
		ctx, cancel := context.WithTimeout(request.Context(), handleTimeout)
		defer cancel()
		request.Body = http.MaxBytesReader(w, request.Body, maxBody)
		c := &call{handler: h, request: request, queue: request.PathValue("queue"), namespace: request.PathValue("namespace"), maxBody: maxBody}
		answer, err := c.run(ctx, verb, handle)
		h.metrics.duration.Observe(h.now().Sub(start).Seconds())
		if err != nil {
			// Clients cause other failures at will, and receive the reason.
			if api := (*apiError)(nil); errors.As(err, &api) {
				h.log.Warn("A request to the API server failed", "path", request.URL.Path, "error", api.cause)
			}
			h.refuse(w, asFailure(err))
			return
		}
		h.metrics.requests.WithLabelValues(strconv.Itoa(answer.status), "").Inc()
		writeJSON(w, answer.status, answer.body)
	}
}

// run handles a call after it has checked who sends it, and whether the sender is authorized.
func (c *call) run(ctx context.Context, verb string, handle func(*call, context.Context) (response, error)) (response, error) {
	host, _, _ := net.SplitHostPort(c.request.RemoteAddr)
	who, err := c.reviewer.authenticate(ctx, host, c.request.Header.Get("Authorization"))
	if err != nil {
		return response{}, err
	}
	listener.Prove(ctx)
	if c.namespace == "" {
		if c.namespace = who.namespace(); c.namespace == "" {
			return response{}, invalid("namespace", "is missing: only ServiceAccounts have one, so use /namespaces/NAMESPACE/queues/QUEUE/jobs")
		}
	}
	for field, value := range map[string]string{"namespace": c.namespace, "queue": c.queue} {
		if len(validation.IsDNS1123Label(value)) > 0 {
			return response{}, invalid(field, "is "+strconv.Quote(shorten(value))+", must be at most 63 of a-z, 0-9 and -")
		}
	}
	if err := c.reviewer.authorize(ctx, who, verb, c.namespace, c.queue); err != nil {
		return response{}, err
	}
	length := c.request.ContentLength
	switch {
	case length > c.maxBody:
		return response{}, &http.MaxBytesError{Limit: c.maxBody}
	case length < 0:
		length = c.maxBody
	}
	release, err := c.shares.take(c.namespace, amount{1, requestBytes + memoryFactor*length})
	if err != nil {
		return response{}, err
	}
	defer release()
	if c.conn, c.producer, c.brokerQueue, err = c.queues.producer(ctx, c.namespace, c.queue); err != nil {
		return response{}, err
	}
	return handle(c, ctx)
}

// receipt describes a job that the broker stores.
type receipt struct {
	ID string `json:"id"`
	// Duplicate is true if the queue already has a job with this ID, and did not store the new job.
	Duplicate bool `json:"duplicate"`
}

func (c *call) send(ctx context.Context) (response, error) {
	parameters, err := parseQuery(c.request.URL.Query())
	if err != nil {
		return response{}, err
	}
	payload, err := io.ReadAll(c.request.Body)
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return response{}, err
	case err != nil:
		return response{}, fail(http.StatusBadRequest, reasonInvalidRequest, "the body did not arrive completely, or not in time")
	}
	job, err := newJob(c.brokerQueue, parameters, parseHeaders(c.request.Header), payload, c.now())
	if err != nil {
		return response{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	result, err := jobkeys.Send(ctx, c.producer, job)
	c.count(result, err)
	if err != nil {
		return response{}, err
	}
	status := http.StatusCreated
	if result.Duplicate {
		status = http.StatusOK
	}
	return response{status, receipt{result.ID, result.Duplicate}}, nil
}

// count counts a job by its result. A failure triggers a check of the connection.
func (c *call) count(result broker.SendResult, err error) {
	switch {
	case err != nil:
		c.conn.CheckHealth(err)
		c.metrics.jobs.WithLabelValues(resultFailed).Inc()
	case result.Duplicate:
		c.metrics.jobs.WithLabelValues(resultDuplicate).Inc()
	default:
		c.metrics.jobs.WithLabelValues(resultStored).Inc()
	}
}

// outcome is the result of one of many jobs: a receipt or an error.
type outcome struct {
	*receipt

	Error *failure `json:"error,omitempty"`
}

// outcomes are in the order of the jobs.
type outcomes struct {
	Jobs   []outcome `json:"jobs"`
	Failed int       `json:"failed"`
}

func (c *call) sendMany(ctx context.Context) (response, error) {
	for name := range c.request.URL.Query() {
		return response{}, invalid(shorten(name), "is not a parameter: each job has its own")
	}
	jobs, err := parseLines(c.request.Body, c.brokerQueue, c.now())
	if err != nil {
		return response{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	answer := outcomes{Jobs: make([]outcome, 0, len(jobs))}
	for _, result := range jobkeys.SendMany(ctx, c.producer, c.brokerQueue, jobs) {
		c.count(result, result.Err)
		if result.Err != nil {
			answer.Failed++
			answer.Jobs = append(answer.Jobs, outcome{Error: asFailure(result.Err)})
			continue
		}
		answer.Jobs = append(answer.Jobs, outcome{receipt: &receipt{result.ID, result.Duplicate}})
	}
	if answer.Failed > 0 {
		return response{http.StatusMultiStatus, answer}, nil
	}
	return response{http.StatusOK, answer}, nil
}

// cancellation describes a job that never runs.
type cancellation struct {
	ID       string `json:"id"`
	Canceled bool   `json:"canceled"`
}

func (c *call) cancel(ctx context.Context) (response, error) {
	id := c.request.PathValue("id")
	if err := broker.ValidateJobReference(c.brokerQueue, id); err != nil {
		return response{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	canceled, err := c.producer.CancelDelayed(ctx, c.brokerQueue, id)
	switch {
	case err != nil:
		c.conn.CheckHealth(err)
		return response{}, err
	case !canceled:
		return response{}, fail(http.StatusNotFound, reasonJobNotDelayed, "the queue has no delayed job with this ID: it is due, running, done, dead or unknown")
	}
	c.metrics.jobs.WithLabelValues(resultCanceled).Inc()
	return response{http.StatusOK, cancellation{id, true}}, nil
}
