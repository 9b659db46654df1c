package modelproxy

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// limits bound what an agent, or a server that does not answer, can occupy.
type limits struct {
	requests                     int
	bodyBytes, bodiesBytes       int64
	eventBytes, responseBytes    int64
	readTimeout, silence, answer time.Duration
}

var defaultLimits = limits{
	requests: 32, bodyBytes: 32 << 20, bodiesBytes: 64 << 20, eventBytes: 16 << 20, responseBytes: 256 << 20,
	readTimeout: time.Minute, silence: 10 * time.Minute, answer: time.Hour,
}

// proxy forwards the requests of an agent that the ledger admits.
type proxy struct {
	provider *provider
	url      *url.URL
	prices   Prices
	// key reads the key of the provider for each request, so that a replaced key is used.
	key       func() (string, error)
	token     string
	ledger    *ledger
	limits    limits
	transport http.RoundTripper
	log       *slog.Logger

	requests, bodies atomic.Int64
}

// Names of headers that an agent may send: others could change who pays, or repeat a request.
var (
	requestHeaders        = []string{"Content-Type", "Accept", "User-Agent", "Anthropic-Version", "Anthropic-Beta", "Openai-Beta", "Originator", "Session_id", "Conversation_id", "X-App"}
	requestHeaderPrefixes = []string{"X-Stainless-", "X-Goog-Api-Client"}
	// connectionHeaders of a response are about the connection to the provider.
	connectionHeaders = []string{"Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length", "Content-Encoding", "Set-Cookie", "Trailer", "Upgrade", "Alt-Svc"}
)

// ServeHTTP forwards a request.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if subtle.ConstantTimeCompare([]byte(p.provider.token(r.Header, query)), []byte(p.token)) != 1 {
		p.fail(w, http.StatusUnauthorized, "the token is not the token of this Pod")
		return
	}
	if open := p.requests.Add(1); open > int64(p.limits.requests) {
		p.requests.Add(-1)
		p.fail(w, http.StatusTooManyRequests, "the agent has too many open requests")
		return
	}
	defer p.requests.Add(-1)
	body, release, err := p.readBody(w, r)
	defer release()
	if err != nil {
		p.fail(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	}
	in := &incoming{method: r.Method, path: r.URL.Path, body: body, limited: p.ledger.isLimited(), prices: p.prices}
	request, err := p.provider.parse(in)
	switch {
	case err != nil:
		p.fail(w, http.StatusBadRequest, err.Error())
		return
	case request == nil:
		p.fail(w, http.StatusNotFound, "the proxy of the model does not forward "+r.Method+" "+r.URL.Path)
		return
	}
	if !request.metered {
		p.forward(w, r, query, request)
		return
	}
	if err := p.ledger.admit(r.Context(), request.bound); err != nil {
		if errors.Is(err, ErrBudget) {
			p.fail(w, http.StatusBadRequest, p.ledger.describe())
			return
		}
		p.log.Error("A request is not admitted", "error", err)
		p.fail(w, http.StatusServiceUnavailable, "the proxy of the model cannot admit the request")
		return
	}
	spent := cost{micros: request.bound.micros, incomplete: request.price == nil}
	func() {
		defer func() { // also after a panic
			if err := p.ledger.settle(request.bound, spent.micros, spent.incomplete); err != nil {
				p.log.Error("The cost of a response is not stored", "error", err)
			}
		}()
		spent = p.forward(w, r, query, request)
	}()
	if spent.aborted {
		panic(http.ErrAbortHandler) // the agent must not take a part of a response for the whole
	}
}

type cost struct {
	micros              int64
	incomplete, aborted bool
}

func (p *proxy) readBody(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	size := p.limits.bodyBytes
	if r.ContentLength >= 0 {
		size = min(r.ContentLength, size+1)
	}
	release = func() { p.bodies.Add(-size) }
	if p.bodies.Add(size) > p.limits.bodiesBytes {
		return nil, release, errors.New("the open requests of the agent are too large")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(p.limits.readTimeout))
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, p.limits.bodyBytes))
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return body, release, err
}

func (p *proxy) fail(w http.ResponseWriter, status int, message string) {
	raw, err := json.Marshal(p.provider.failure(status, message))
	if err != nil { // strings always marshal
		raw = nil
	}
	w.Header().Set("Content-Type", "application/json")
	if status != http.StatusTooManyRequests {
		w.Header().Set("X-Should-Retry", "false") // clients of Anthropic and OpenAI read it
	}
	w.WriteHeader(status)
	_, _ = w.Write(raw) // the agent may be gone
}

// forward sends a request once, and returns what it cost.
func (p *proxy) forward(w http.ResponseWriter, r *http.Request, query url.Values, request *request) cost {
	all := cost{micros: request.bound.micros, incomplete: request.price == nil}
	none := cost{}
	ctx, cancel := context.WithTimeout(r.Context(), p.limits.answer)
	defer cancel()
	silence := time.AfterFunc(p.limits.silence, cancel)
	defer silence.Stop()
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	out, err := p.newRequest(ctx, r, query, request.body)
	if err != nil {
		p.log.Error("The key of the provider cannot be used", "error", err)
		p.fail(w, http.StatusBadGateway, "the proxy of the model cannot read the key of the provider")
		return none
	}
	response, err := p.transport.RoundTrip(out)
	if err != nil {
		p.log.Error("The provider does not answer", "error", err, "connected", connected)
		p.fail(w, http.StatusBadGateway, "the provider does not answer")
		if !connected {
			return none
		}
		return all
	}
	defer response.Body.Close()
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusMultipleChoices {
		p.relayFailure(w, response)
		if isFree(response.StatusCode) {
			return none
		}
		return all
	}
	for name, values := range response.Header {
		if !slices.Contains(connectionHeaders, name) {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(response.StatusCode)
	m := p.provider.meter()
	failed := p.copyResponse(w, response, m, func() { silence.Reset(p.limits.silence) }, !request.metered)
	if !request.metered {
		return cost{aborted: failed}
	}
	micros, incomplete := request.costOf(m, failed)
	return cost{micros: micros, incomplete: incomplete, aborted: failed && !isComplete(m)}
}

func isComplete(m meter) bool { _, _, complete := m.usage(); return complete }

func (p *proxy) newRequest(ctx context.Context, r *http.Request, query url.Values, body []byte) (*http.Request, error) {
	to := *p.url
	to.Path = strings.TrimSuffix(to.Path, "/") + r.URL.Path
	query.Del("key")
	to.RawQuery = query.Encode()
	out, err := http.NewRequestWithContext(ctx, r.Method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out.GetBody = nil // so that the transport never sends it twice
	if len(body) == 0 {
		out.Body = nil
	}
	for name, values := range r.Header {
		if slices.Contains(requestHeaders, name) || hasPrefix(name, requestHeaderPrefixes) {
			out.Header[name] = values
		}
	}
	key, err := p.key()
	if err != nil {
		return nil, err
	}
	p.provider.authorize(out.Header, key)
	return out, nil
}

// isFree reports whether a request with this status costs nothing: the provider refused it. Other failures, such as the timeout of a
// gateway, may be in the middle of an answer.
func isFree(status int) bool {
	const overloaded = 529
	return status < http.StatusInternalServerError ||
		slices.Contains([]int{http.StatusInternalServerError, http.StatusNotImplemented, http.StatusServiceUnavailable, overloaded}, status)
}

// relayFailure relays an error of the provider, but for errors about the key, which may contain a part of it.
func (p *proxy) relayFailure(w http.ResponseWriter, response *http.Response) {
	switch {
	case response.StatusCode == http.StatusUnauthorized:
		p.log.Error("The provider refuses the key")
		p.fail(w, http.StatusUnauthorized, "the provider refuses the key of the SessionRunner's spec.model.secretRef")
		return
	case response.StatusCode < http.StatusBadRequest: // a redirection, which could send the key elsewhere
		p.fail(w, http.StatusBadGateway, "the provider answered with a redirection")
		return
	}
	const maxFailureBytes = 1 << 20
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxFailureBytes))
	if err != nil {
		raw = nil
	}
	for _, name := range []string{"Content-Type", "Retry-After", "X-Should-Retry", "Request-Id", "X-Request-Id"} {
		if value := response.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(raw)
}

// copyResponse copies a response while it arrives, and reads its usage. It reports whether the response did not arrive as a whole, or
// its usage cannot be read.
func (p *proxy) copyResponse(w http.ResponseWriter, response *http.Response, m meter, alive func(), unread bool) (failed bool) {
	contentType, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	reader := &eventReader{meter: m, isStream: err == nil && contentType == "text/event-stream", max: p.limits.eventBytes, unread: unread}
	controller := http.NewResponseController(w)
	const bufferBytes = 32 << 10
	buffer, total := make([]byte, bufferBytes), int64(0)
	for {
		count, err := response.Body.Read(buffer)
		alive()
		if total += int64(count); total > p.limits.responseBytes {
			return true
		}
		reader.write(buffer[:count])
		if count > 0 {
			if _, err := w.Write(buffer[:count]); err != nil {
				return true
			}
			if err := controller.Flush(); err != nil {
				return true
			}
		}
		if err != nil {
			reader.end()
			return !errors.Is(err, io.EOF) || reader.failed
		}
	}
}

// eventReader finds the JSON documents in a response: the body as a whole, or the data of server-sent events.
type eventReader struct {
	meter    meter
	isStream bool
	max      int64
	// unread responses have no usage.
	unread bool
	failed bool

	part []byte
}

func (e *eventReader) write(data []byte) {
	if e.failed || e.unread {
		return
	}
	for e.isStream {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			break
		}
		e.part = append(e.part, data[:end]...)
		data = data[end+1:]
		e.line()
	}
	if e.part = append(e.part, data...); int64(len(e.part)) > e.max {
		e.failed, e.part = true, nil
	}
}

func (e *eventReader) line() {
	data, found := bytes.CutPrefix(e.part, []byte("data:"))
	data = bytes.TrimSpace(data)
	if found && len(data) > 0 && string(data) != "[DONE]" {
		e.failed = e.meter.event(data) != nil || e.failed
	}
	e.part = e.part[:0]
}

func (e *eventReader) end() {
	switch {
	case e.failed, e.unread:
	case e.isStream:
		e.line()
	default:
		e.failed = e.meter.event(e.part) != nil
	}
}
