// Package modelserver is a server on loopback with as much of the APIs of Anthropic, OpenAI and Gemini as the command
// lines of agents need. It answers with a script instead of a model, and counts the tokens that it reported.
package modelserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxRequestBytes bounds a request. Agents send the whole conversation each time.
const maxRequestBytes = 32 << 20

// Server answers the requests of agents with the turns of a script, one after the other. After the last one it
// answers with the text "done".
type Server struct {
	// URL of the server, without a path.
	URL string
	// APIKey is the only key that it accepts.
	APIKey string

	http  *httptest.Server
	mutex sync.Mutex
	turns []Turn
	// last is the body of the last request.
	last string
	// usage is that of turns of the script, and auxiliary that of requests that offer no tools: agents make titles and summaries
	// with them, which use up no turn.
	usage, auxiliary Usage
	hanging          chan struct{}
}

// New starts a server on loopback with a script. Close stops it.
func New(apiKey string, turns ...Turn) *Server {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil { // as in net/http/httptest
		panic(err)
	}
	return NewOn(listener, apiKey, turns...)
}

// NewOn starts a server on another listener.
func NewOn(listener net.Listener, apiKey string, turns ...Turn) *Server {
	s := &Server{APIKey: apiKey, turns: turns, hanging: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", s.handler(anthropicMessages{}))
	mux.HandleFunc("POST /v1/messages/count_tokens", countTokens(`{"input_tokens": 1}`))
	mux.HandleFunc("POST /v1/responses", s.handler(openAIResponses{}))
	mux.HandleFunc("POST /v1beta/models/{call}", s.handleGemini)
	mux.HandleFunc("HEAD /", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error": {"message": "not found", "type": "not_found_error"}}`, http.StatusNotFound)
	})
	s.http = httptest.NewUnstartedServer(mux)
	_ = s.http.Listener.Close()
	s.http.Listener = listener
	s.http.Start()
	s.URL = s.http.URL
	return s
}

// Append adds turns to the script.
func (s *Server) Append(turns ...Turn) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.turns = append(s.turns, turns...)
}

// Close stops the server.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Usage returns the tokens that the server counted: those of turns of the script, and those of auxiliary requests.
func (s *Server) Usage() (turns, auxiliary Usage) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.usage, s.auxiliary
}

// LastRequest returns the body of the last request.
func (s *Server) LastRequest() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.last
}

// Hanging receives a value when the server reaches a turn with Hang.
func (s *Server) Hanging() <-chan struct{} { return s.hanging }

type api interface {
	// events returns the answer as a stream.
	events(t *Turn, model string) []event
	// object returns the answer as one object.
	object(t *Turn, model string) any
	// failure returns the body of an error.
	failure(status int) string
}

type event struct{ name, data string }

func (s *Server) handler(a api) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, a, request{}) }
}

// request is what a request of an agent has in all APIs, except for those of Gemini, whose path has the model.
type request struct {
	Model  string            `json:"model"`
	Stream bool              `json:"stream"`
	Tools  []json.RawMessage `json:"tools"`
}

func (s *Server) isAuthorized(r *http.Request) bool {
	for _, header := range []string{"X-Api-Key", "X-Goog-Api-Key"} {
		if r.Header.Get(header) == s.APIKey {
			return true
		}
	}
	return r.Header.Get("Authorization") == "Bearer "+s.APIKey || r.URL.Query().Get("key") == s.APIKey
}

func (s *Server) next(in *request, body []byte) Turn {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.last = string(body)
	turn := Turn{Text: "done", Usage: Usage{Input: 1, Output: 1}}
	switch {
	case len(in.Tools) == 0:
		turn.Text = `{"title": "A session"}`
		s.auxiliary.add(turn.Usage)
		return turn
	case len(s.turns) > 0:
		turn, s.turns = s.turns[0], s.turns[1:]
	}
	if turn.isAnswer() {
		s.usage.add(turn.Usage)
	}
	return turn
}

// answer answers a request with the right key. Its body completes what is known of it.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, a api, in request) {
	if !s.isAuthorized(r) {
		http.Error(w, a.failure(http.StatusUnauthorized), http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequestBytes))
	if err != nil {
		return
	}
	_ = json.Unmarshal(body, &in) // which is answered, too, if it is malformed
	turn := s.next(&in, body)
	switch {
	case turn.Hang:
		s.hanging <- struct{}{}
		<-r.Context().Done()
	case turn.Status != 0:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(turn.Status)
		fmt.Fprint(w, a.failure(turn.Status))
	case !in.Stream:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, encode(a.object(&turn, in.Model)))
	default:
		writeStream(w, a.events(&turn, in.Model), turn.Interrupted)
	}
}

func writeStream(w http.ResponseWriter, events []event, interrupted bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	if interrupted {
		events = events[:len(events)/2]
	}
	for _, e := range events {
		if e.name != "" {
			fmt.Fprintf(w, "event: %s\n", e.name)
		}
		fmt.Fprintf(w, "data: %s\n\n", e.data)
	}
	if interrupted {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // closes the connection
	}
}

func countTokens(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answer)
	}
}

func (s *Server) handleGemini(w http.ResponseWriter, r *http.Request) {
	model, method, _ := strings.Cut(r.PathValue("call"), ":")
	if method == "countTokens" {
		countTokens(`{"totalTokens": 1}`)(w, r)
		return
	}
	s.answer(w, r, gemini{}, request{Model: model, Stream: method == "streamGenerateContent"})
}

var ids atomic.Int64

func nextID(prefix string) string { return fmt.Sprintf("%s_%d", prefix, ids.Add(1)) }

func now() int64 { return time.Now().Unix() }

// Turn is the answer to one request of an agent.
type Turn struct {
	// Thinking and Text are sent before the tool calls.
	Thinking, Text string
	ToolCalls      []ToolCall
	Usage          Usage
	// Status is an HTTP status other than 200 that is sent instead of the answer.
	Status int
	// Interrupted closes the connection in the middle of the answer.
	Interrupted bool
	// Hang leaves the request without an answer until the agent closes the connection.
	Hang bool
}

// ToolCall is a call of one of the agent's tools.
type ToolCall struct {
	Name  string
	Input map[string]any
}

// Usage are the tokens of a request. Input does not include those that were read from, or written into, a cache.
type Usage struct {
	Input, CacheRead, CacheWrite, Output int64
}

func (u *Usage) add(other Usage) {
	u.Input += other.Input
	u.CacheRead += other.CacheRead
	u.CacheWrite += other.CacheWrite
	u.Output += other.Output
}

func (t *Turn) isAnswer() bool { return t.Status == 0 && !t.Interrupted && !t.Hang }

func encode(value any) string {
	raw, err := json.Marshal(value)
	if err != nil { // only values that were decoded from JSON, or are strings and numbers
		panic(err)
	}
	return string(raw)
}
