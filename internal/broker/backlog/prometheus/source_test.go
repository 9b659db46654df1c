package prometheus

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/backlog"
	"github.com/yardmaster/yardmaster/test/require"
)

// serveResponses simulates the Prometheus API with a response for each query.
func serveResponses(responses map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, body, found := strings.Cut(responses[r.URL.Query().Get("query")], " ")
		if r.URL.Path != "/prom/api/v1/query" || !found {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		var code int
		_, _ = fmt.Sscan(status, &code)
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, body)
	})
}

func vectorResponse(values ...string) string {
	var all []string
	for i, value := range values {
		all = append(all, fmt.Sprintf(`{"metric":{"queue":"%d"},"value":[1763693000.781,%q]}`, i, value))
	}
	return `200 {"status":"success","data":{"resultType":"vector","result":[` + strings.Join(all, ",") + `]}}`
}

func TestQueryReturnsOneNumberOrAnError(t *testing.T) {
	for name, row := range map[string]struct {
		response  string
		want      int64
		class     broker.ErrorClass
		wantError string
	}{
		"one series":                   {vectorResponse("42"), 42, "", ""},
		"an empty backlog":             {vectorResponse("0"), 0, "", ""},
		"a fraction is rounded up":     {vectorResponse("0.2"), 1, "", ""},
		"a large number":               {vectorResponse("1.2e+06"), 1_200_000, "", ""},
		"a scalar":                     {`200 {"status":"success","data":{"resultType":"scalar","result":[1763693000.781,"7"]}}`, 7, "", ""},
		"with warnings":                {`200 {"status":"success","warnings":["w"],"data":{"resultType":"scalar","result":[1763693000.781,"7"]}}`, 7, "", ""},
		"no series":                    {vectorResponse(), 0, broker.ClassNotFound, "its result is empty"},
		"two series":                   {vectorResponse("1", "2"), 0, broker.ClassInvalid, "its result has 2 series"},
		"NaN":                          {vectorResponse("NaN"), 0, broker.ClassInvalid, "its result is NaN, must be a number"},
		"infinity":                     {vectorResponse("+Inf"), 0, broker.ClassInvalid, "its result is +Inf"},
		"a negative number":            {vectorResponse("-1"), 0, broker.ClassInvalid, "its result is -1, must be 0 to"},
		"a number that is too large":   {vectorResponse("1e+300"), 0, broker.ClassInvalid, "its result is 1e+300, must be 0 to"},
		"a value that is not a string": {`200 {"status":"success","data":{"resultType":"vector","result":[{"value":[1,5]}]}}`, 0, broker.ClassInvalid, "not valid"},
		"a histogram":                  {`200 {"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{}]}]}}`, 0, broker.ClassInvalid, "histogram"},
		"a range vector":               {`200 {"status":"success","data":{"resultType":"matrix","result":[]}}`, 0, broker.ClassInvalid, `its result is a matrix`},
		"a string":                     {`200 {"status":"success","data":{"resultType":"string","result":[1,"x"]}}`, 0, broker.ClassInvalid, `not valid`},
		"an empty response":            {`200 {}`, 0, broker.ClassInvalid, "not valid"},
		"an invalid query": {
			`400 {"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:3: parse error: unexpected end of input"}`,
			0, broker.ClassInvalid, "parse error",
		},
		"a query that fails":                 {`422 {"status":"error","errorType":"execution","error":"many-to-many matching"}`, 0, broker.ClassInvalid, "many-to-many"},
		"a query that times out":             {`503 {"status":"error","errorType":"timeout","error":"query timed out"}`, 0, broker.ClassUnreachable, "timed out"},
		"a proxy without an upstream server": {`503 no healthy upstream`, 0, broker.ClassUnreachable, "503"},
		"an internal server error":           {`500 {"status":"error"}`, 0, broker.ClassUnreachable, "500"},
		"not authenticated":                  {`401 Unauthorized`, 0, broker.ClassUnauthorized, "401"},
		"a server that is not Prometheus":    {`200 <html>`, 0, broker.ClassInvalid, "not valid"},
		"a response that is too large":       {"200 " + strings.Repeat("x", 1<<21), 0, broker.ClassInvalid, "longer than"},
		"a long error":                       {`400 {"status":"error","error":"` + strings.Repeat("y", 5000) + `"}`, 0, broker.ClassInvalid, "y…"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(serveResponses(map[string]string{"waiting": row.response}))
			defer server.Close()
			s := require.Call(NewQuerySource(broker.Credentials{URL: server.URL + "/prom/"}, Queries{Backlog: "waiting"})).Succeeds(t)
			defer s.Disconnect()
			reading, err := s.Read(t.Context())
			if row.class == "" {
				require.NoError(t, err)
				isOnlyThat := reading.InFlight == nil && reading.TotalArrivals == nil && !reading.MeasuredTime.IsZero()
				require.True(t, reading.Backlog == row.want && isOnlyThat, "%+v, want %d", reading, row.want)
				return
			}
			require.ErrorContains(t, err, row.wantError)
			require.ErrorContains(t, err, "query")
			require.True(t, broker.ClassOf(err) == row.class && len(err.Error()) <= 1000, "%v of %d bytes is %s", err, len(err.Error()), broker.ClassOf(err))
		})
	}
}

func TestEachQuerySetsItsFieldOfTheReading(t *testing.T) {
	server := httptest.NewServer(serveResponses(map[string]string{
		`sum(waiting{q="a"})`: vectorResponse("3"), "busy": vectorResponse("2"), "sent": vectorResponse("1000"), "none": vectorResponse(),
	}))
	defer server.Close()
	access := broker.Credentials{URL: server.URL + "/prom"}
	s := require.Call(NewQuerySource(access, Queries{Backlog: `sum(waiting{q="a"})`, InFlight: "busy", TotalArrivals: "sent"})).Succeeds(t)
	reading, err := s.Read(t.Context())
	require.True(t, err == nil && reading.Backlog == 3 && *reading.InFlight == 2 && *reading.TotalArrivals == 1000, "%+v: %v", reading, err)
	for field, queries := range map[string]Queries{
		"inFlightQuery": {Backlog: "busy", InFlight: "none"},
		"arrivalsQuery": {Backlog: "busy", TotalArrivals: "none"},
	} {
		s := require.Call(NewQuerySource(access, queries)).Succeeds(t)
		reading, err := s.Read(t.Context())
		require.ErrorContains(t, err, field)
		require.Equal(t, backlog.Reading{}, reading)
	}
	_, err = NewQuerySource(access, Queries{Backlog: " "})
	require.True(t, broker.ClassOf(err) == broker.ClassInvalid, "without a query: %v", err)
}

func TestCredentialsAreSentOnlyToATrustedServer(t *testing.T) {
	for name, row := range map[string]struct {
		access broker.Credentials
		want   string
	}{
		"a token":                 {broker.Credentials{Token: "hidden"}, "Bearer hidden"},
		"a username and password": {broker.Credentials{Username: "me", Password: "hidden"}, "Basic bWU6aGlkZGVu"},
		"no credentials":          {broker.Credentials{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			handler := serveResponses(map[string]string{"q": vectorResponse("1")})
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r.Header.Get("Authorization")
				handler.ServeHTTP(w, r)
			}))
			defer server.Close()
			row.access.URL = server.URL + "/prom"
			read := func() error {
				s, err := NewQuerySource(row.access, Queries{Backlog: "q"})
				if err != nil {
					return err
				}
				defer s.Disconnect()
				_, err = s.Read(t.Context())
				return err
			}
			err := read()
			isSecret := got == "" && !strings.Contains(err.Error(), "hidden")
			require.True(t, broker.ClassOf(err) == broker.ClassUnauthorized && isSecret, "untrusted server: %v, %q was sent", err, got)
			row.access.TLS = &broker.TLS{CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
			err = read()
			require.True(t, err == nil && got == row.want, "%v, %q was sent, want %q", err, got, row.want)
		})
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	redirected := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { redirected = true }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer server.Close()
	for url, want := range map[string]broker.ErrorClass{server.URL: broker.ClassInvalid, "http://127.0.0.1:1": broker.ClassUnreachable} {
		s := require.Call(NewQuerySource(broker.Credentials{URL: url, Token: "hidden"}, Queries{Backlog: "q"})).Succeeds(t)
		_, err := s.Read(t.Context())
		require.True(t, broker.ClassOf(err) == want && !redirected, "%s: %v, redirect followed: %t", url, err, redirected)
		require.True(t, !strings.Contains(err.Error(), "query=") && !strings.Contains(err.Error(), "hidden"), "%v", err)
	}
}
