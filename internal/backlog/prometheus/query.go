// Package prometheus reads how much waits by asking queries of Prometheus, or of what
// speaks its HTTP API.
package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/internal/backlog"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// Queries for the parts of a reading. Each must give one number.
type Queries struct {
	Waiting string
	// InFlight and Arrivals may be empty.
	InFlight, Arrivals string
}

// Server is asked the same queries each time.
type Server struct {
	http    *backlog.HTTP
	queries Queries
}

var _ backlog.Source = (*Server)(nil)

// NewServer connects to nothing yet. The URL is what the API is under, without /api.
func NewServer(access broker.Credentials, queries Queries) (backlog.Source, error) {
	if strings.TrimSpace(queries.Waiting) == "" {
		return nil, broker.Errorf(broker.ClassInvalid, "query is empty")
	}
	asking, err := backlog.NewHTTP(access)
	if err != nil {
		return nil, err
	}
	return &Server{asking, queries}, nil
}

// Read asks the queries.
func (s *Server) Read(ctx context.Context) (backlog.Reading, error) {
	reading := backlog.Reading{At: time.Now()}
	var err error
	if reading.Waiting, err = s.count(ctx, "query", s.queries.Waiting); err != nil {
		return backlog.Reading{}, err
	}
	if s.queries.InFlight != "" {
		inFlight, err := s.count(ctx, "inFlightQuery", s.queries.InFlight)
		if err != nil {
			return backlog.Reading{}, err
		}
		reading.InFlight = &inFlight
	}
	if s.queries.Arrivals != "" {
		arrivals, err := s.count(ctx, "arrivalsQuery", s.queries.Arrivals)
		if err != nil {
			return backlog.Reading{}, err
		}
		reading.Arrivals = new(uint64(arrivals)) //nolint:gosec // a count
	}
	return reading, nil
}

// count asks one query, of the field of that name.
func (s *Server) count(ctx context.Context, field, query string) (int64, error) {
	value, err := s.ask(ctx, query)
	if err == nil {
		var count int64
		if count, err = backlog.Count("its result", value); err == nil {
			return count, nil
		}
	}
	return 0, broker.ClassifyNetworkError("asking "+field, err)
}

// timeout is what the server may take for a query: less than the answer is waited for, so
// that it is the one who says that it took too long.
const timeout = "4s"

func (s *Server) ask(ctx context.Context, query string) (float64, error) {
	var a answer
	status, err := s.http.Get(ctx, "/api/v1/query", url.Values{"query": {query}, "timeout": {timeout}}, &a)
	if err != nil {
		return 0, err
	}
	if a.Status != "success" || status != http.StatusOK {
		return 0, a.failure(status)
	}
	return a.Data.number()
}

// answer of the API.
type answer struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
	Data      data   `json:"data"`
}

type data struct {
	Type   string          `json:"resultType"`
	Result json.RawMessage `json:"result"`
}

// maxMessage bounds what of the server's words is repeated.
const maxMessage = 300

// failure is why the server has no answer to a query. Whether the query is wrong, or the
// server has no time for it, decides who can help.
func (a *answer) failure(status int) error {
	class := broker.ClassInvalid
	switch {
	case status == http.StatusNotFound:
		return broker.Errorf(broker.ClassInvalid, "the answer is 404: the url has no API of Prometheus under it")
	case a.ErrorType == "timeout", a.ErrorType == "canceled", a.ErrorType == "unavailable", a.ErrorType == "internal",
		status >= http.StatusInternalServerError:
		class = broker.ClassUnreachable
	}
	said := strings.ToValidUTF8(a.Error, "?")
	if len(said) > maxMessage {
		said = strings.ToValidUTF8(said[:maxMessage], "") + "…"
	}
	return broker.Errorf(class, "the answer is %d, %s: %s", status, strconv.Quote(a.ErrorType), said)
}

// sample is a time and a value.
type sample [2]any

// number is the one that a result has.
func (d *data) number() (float64, error) {
	switch d.Type {
	case "scalar":
		var one sample
		if err := json.Unmarshal(d.Result, &one); err != nil {
			return 0, errShape
		}
		return one.value()
	case "vector":
		var all []struct {
			Value *sample `json:"value"`
		}
		if err := json.Unmarshal(d.Result, &all); err != nil {
			return 0, errShape
		}
		switch {
		case len(all) == 0:
			return 0, broker.Errorf(broker.ClassNotFound, "its result is empty; if that means 0, say so: … or vector(0)")
		case len(all) > 1:
			return 0, broker.Errorf(broker.ClassInvalid, "its result has %d series, must have 1: sum(…) makes one of them", len(all))
		case all[0].Value == nil:
			return 0, broker.Errorf(broker.ClassInvalid, "its result is a histogram, must be a number")
		}
		return all[0].Value.value()
	}
	return 0, broker.Errorf(broker.ClassInvalid, "its result is a %q, must be a vector or a scalar", d.Type)
}

var errShape = broker.Errorf(broker.ClassInvalid, "the answer does not look like one of Prometheus")

// value is written as text, because JSON has no words for those that are no numbers.
func (s *sample) value() (float64, error) {
	text, is := s[1].(string)
	if !is {
		return 0, errShape
	}
	value, err := strconv.ParseFloat(text, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), math.IsInf(value, 0):
		return 0, broker.Errorf(broker.ClassInvalid, "its result is %s", text)
	case err != nil:
		return 0, errShape
	}
	return value, nil
}

// Disconnect ends the connections.
func (s *Server) Disconnect() { s.http.Disconnect() }
