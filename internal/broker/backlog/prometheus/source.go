// Package prometheus reads a backlog with queries to a server that has the Prometheus HTTP API.
package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/backlog"
)

// Queries are in PromQL. Each must return one number.
type Queries struct {
	Backlog string
	// InFlight and TotalArrivals are optional.
	InFlight, TotalArrivals string
}

// QuerySource runs the same queries for each reading.
type QuerySource struct {
	client  *backlog.HTTPClient
	api     v1.API
	queries Queries
}

// NewQuerySource returns a source that connects with the first reading. The URL is that of the API, without /api.
func NewQuerySource(credentials broker.Credentials, queries Queries) (backlog.Source, error) {
	if strings.TrimSpace(queries.Backlog) == "" {
		return nil, broker.Errorf(broker.ClassInvalid, "query is empty")
	}
	// The API has this field in each response.
	isField := func(name string, value json.RawMessage) bool {
		return name == "status" && slices.Contains([]string{`"success"`, `"error"`}, string(value))
	}
	client, err := backlog.NewHTTPClient(credentials, backlog.API{MaxResponse: maxResponseBytes, IsField: isField})
	if err != nil {
		return nil, err
	}
	getOnly := *client.Client
	getOnly.Transport = getOnlyTransport{client.Transport}
	prometheus, err := api.NewClient(api.Config{Address: client.BaseURL.String(), Client: &getOnly})
	if err != nil {
		return nil, broker.Errorf(broker.ClassInvalid, "url is not a valid URL")
	}
	return &QuerySource{client, v1.NewAPI(prometheus), queries}, nil
}

// maxResponseBytes is far more than a response with one number needs. Each series of a larger response would take a multiple of its
// length in memory.
const maxResponseBytes = 256 << 10

// getOnlyTransport makes the API client fall back to GET, because proxies that authorize by method map its POST to a permission to
// create.
type getOnlyTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t getOnlyTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet {
		return &http.Response{StatusCode: http.StatusMethodNotAllowed, Body: http.NoBody, Request: request}, nil
	}
	return t.RoundTripper.RoundTrip(request)
}

// Read implements backlog.Source.
func (s *QuerySource) Read(ctx context.Context) (reading backlog.Reading, err error) {
	defer func() { err = s.client.Conceal(err) }()
	reading.MeasuredTime = time.Now()
	if reading.Backlog, err = s.queryCount(ctx, "query", s.queries.Backlog); err != nil {
		return backlog.Reading{}, err
	}
	if s.queries.InFlight != "" {
		inFlight, err := s.queryCount(ctx, "inFlightQuery", s.queries.InFlight)
		if err != nil {
			return backlog.Reading{}, err
		}
		reading.InFlight = &inFlight
	}
	if s.queries.TotalArrivals != "" {
		arrivals, err := s.queryCount(ctx, "arrivalsQuery", s.queries.TotalArrivals)
		if err != nil {
			return backlog.Reading{}, err
		}
		reading.TotalArrivals = new(uint64(arrivals)) //nolint:gosec // MessageCount returns no negative number
	}
	return reading, nil
}

// queryTimeout is shorter than the timeout of the HTTP request, so that a slow query fails with the server's error.
const queryTimeout = 4 * time.Second

func (s *QuerySource) queryCount(ctx context.Context, field, query string) (int64, error) {
	operation := "running " + field
	result, _, err := s.api.Query(ctx, query, time.Time{}, v1.WithTimeout(queryTimeout))
	if err != nil {
		return 0, classifyQueryError(operation, err)
	}
	value, err := singleValue(result)
	if err != nil {
		return 0, broker.ClassifyNetworkError(operation, err)
	}
	count, err := backlog.MessageCount("its result", value)
	return count, broker.ClassifyNetworkError(operation, err)
}

func classifyQueryError(operation string, err error) error {
	failure := (*v1.Error)(nil)
	if !errors.As(err, &failure) {
		classified := backlog.ClassifyHTTPError(operation, err)
		if broker.ClassOf(classified) == broker.ClassUnknown { // of the JSON decoder
			return broker.Errorf(broker.ClassInvalid, "%s: the response is not valid: %s", operation, broker.TruncateText(err.Error()))
		}
		return classified
	}
	class := broker.ClassInvalid
	switch failure.Type {
	case v1.ErrTimeout, v1.ErrCanceled, v1.ErrServer, "unavailable", "internal":
		class = broker.ClassUnreachable
	case v1.ErrClient:
		return broker.Errorf(class, "%s: %s: the URL must lead to a Prometheus API", operation, failure.Msg)
	case v1.ErrBadResponse:
		return broker.Errorf(class, "%s: the response is not valid: %s", operation, broker.TruncateText(failure.Msg))
	case v1.ErrBadData, v1.ErrExec:
	}
	return broker.Errorf(class, "%s: %s", operation, broker.TruncateText(strings.TrimSpace(failure.Msg+" "+failure.Detail)))
}

// singleValue returns the number in a result that has exactly one number.
func singleValue(result model.Value) (float64, error) {
	var value model.SampleValue
	switch r := result.(type) {
	case *model.Scalar:
		value = r.Value
	case model.Vector:
		switch {
		case len(r) == 0:
			return 0, broker.Errorf(broker.ClassNotFound, "its result is empty; if that means 0, add: or vector(0)")
		case len(r) > 1:
			return 0, broker.Errorf(broker.ClassInvalid, "its result has %d series, must have 1: aggregate them with sum(…)", len(r))
		case r[0].Histogram != nil:
			return 0, broker.Errorf(broker.ClassInvalid, "its result is a histogram, must be a number")
		}
		value = r[0].Value
	default:
		return 0, broker.Errorf(broker.ClassInvalid, "its result is a %s, must be a vector or a scalar", result.Type())
	}
	if math.IsInf(float64(value), 0) {
		return 0, broker.Errorf(broker.ClassInvalid, "its result is %s", value)
	}
	return float64(value), nil
}

// Disconnect closes idle connections.
func (s *QuerySource) Disconnect() { s.client.Disconnect() }
