package redis

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/backlog"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/test/certtest"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
)

func readList(t *testing.T, access broker.Credentials, key string) (backlog.Reading, error) {
	t.Helper()
	list, err := NewListSource(t.Context(), access, key)
	if err != nil {
		return backlog.Reading{}, err
	}
	defer list.Disconnect()
	return list.Read(t.Context())
}

// readBoundedList reads a list as the operator does.
func readBoundedList(t *testing.T, access broker.Credentials, key string) (backlog.Reading, error) {
	t.Helper()
	access.Dial = bounded.NewDialer(bounded.Options{AllowLocal: true}).For("team")
	return readList(t, access, key)
}

func TestBacklogOfAListIsItsLength(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for length := range 4 {
		reading, err := readBoundedList(t, broker.Credentials{URL: s.URL()}, "jobs")
		want := s.RunCLIForNumber("LLEN", "jobs")
		isRead := err == nil && reading.Backlog == want && want == int64(length) && !reading.MeasuredTime.IsZero()
		require.True(t, isRead, "%+v: %v, want %d waiting", reading, err, want)
		require.True(t, reading.InFlight == nil && reading.TotalArrivals == nil, "%+v: a list reports neither messages in flight nor arrivals", reading)
		s.RunCLI("LPUSH", "jobs", "x")
	}
}

func TestBacklogOfAStreamGroup(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		commands          []string
		waiting, inFlight int64
		arrivals          uint64
	}{
		"an empty stream":                                     {[]string{"XGROUP CREATE jobs g $ MKSTREAM"}, 0, 0, 0},
		"no message was read":                                 {[]string{"XADD jobs 1-1 a b", "XADD jobs 1-2 a b", "XGROUP CREATE jobs g 0"}, 2, 0, 0},
		"some messages are not acknowledged":                  {[]string{"XADD jobs 1-1 a b", "XADD jobs 1-2 a b", "XADD jobs 1-3 a b", "XGROUP CREATE jobs g 0", "XREADGROUP GROUP g me COUNT 2 STREAMS jobs >", "XACK jobs g 1-1"}, 1, 1, 3},
		"all messages are acknowledged":                       {[]string{"XADD jobs 1-1 a b", "XGROUP CREATE jobs g 0", "XREADGROUP GROUP g me STREAMS jobs >", "XACK jobs g 1-1"}, 0, 0, 1},
		"messages before the start of the group do not count": {[]string{"XADD jobs 1-1 a b", "XGROUP CREATE jobs g $", "XADD jobs 1-2 a b"}, 1, 0, 0},
		"the server reports no lag":                           {[]string{"XADD jobs 1-1 a b", "XADD jobs 1-2 a b", "XADD jobs 1-3 a b", "XADD jobs 1-4 a b", "XGROUP CREATE jobs g 1-1", "XDEL jobs 1-3"}, 2, 0, 0},
		"another group has read more":                         {[]string{"XADD jobs 1-1 a b", "XGROUP CREATE jobs g 0", "XGROUP CREATE jobs h 0", "XREADGROUP GROUP h me STREAMS jobs >"}, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			for _, command := range row.commands {
				s.RunCLI(strings.Fields(command)...)
			}
			stream := require.Call(NewStreamSource(t.Context(), broker.Credentials{URL: s.URL()}, "jobs", "g")).Succeeds(t)
			defer stream.Disconnect()
			reading, err := stream.Read(t.Context())
			isRead := err == nil && reading.Backlog == row.waiting && reading.InFlight != nil && *reading.InFlight == row.inFlight
			require.True(t, isRead, "%+v: %v", reading, err)
			got := reading.TotalArrivals
			require.True(t, (got == nil || *got == row.arrivals) && (got != nil || row.arrivals == 0), "arrivals %v, want %d", got, row.arrivals)
			output := s.RunCLI("XPENDING", "jobs", "g")
			require.True(t, strings.HasPrefix(output, fmt.Sprint(row.inFlight)), "redis-cli printed %q", output)
		})
	}
}

func TestReadErrorsHaveAClass(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.RunCLI("SET", "text", "x")
	s.RunCLI("XADD", "stream", "*", "a", "b")
	locked := redistest.Start(t, "--requirepass", "hidden")
	stopped := redistest.Start(t)
	stopped.Stop()
	list := func(access broker.Credentials, key string) func(*testing.T) error {
		return func(t *testing.T) error {
			_, err := readList(t, access, key)
			return err
		}
	}
	stream := func(key, group string) func(*testing.T) error {
		return func(t *testing.T) error {
			stream, err := NewStreamSource(t.Context(), broker.Credentials{URL: s.URL()}, key, group)
			if err != nil {
				return err
			}
			defer stream.Disconnect()
			_, err = stream.Read(t.Context())
			return err
		}
	}
	for name, row := range map[string]struct {
		read      func(*testing.T) error
		want      broker.ErrorClass
		wantError string
	}{
		"no server":                          {list(broker.Credentials{URL: stopped.URL()}, "jobs"), broker.ClassUnreachable, "connection refused"},
		"no password":                        {list(broker.Credentials{URL: locked.URL()}, "jobs"), broker.ClassUnauthorized, "NOAUTH"},
		"a wrong password":                   {list(broker.Credentials{URL: locked.URL(), Username: "default", Password: "wrong"}, "jobs"), broker.ClassUnauthorized, "WRONGPASS"},
		"a key that is not a list":           {list(broker.Credentials{URL: s.URL()}, "text"), broker.ClassInvalid, `the list "text"`},
		"a missing database":                 {list(broker.Credentials{URL: s.URL() + "/99"}, "jobs"), broker.ClassInvalid, "DB index"},
		"a missing stream":                   {stream("nothing", "g"), broker.ClassNotFound, `the stream "nothing"`},
		"a missing group":                    {stream("stream", "g"), broker.ClassNotFound, "no such group"},
		"a key that is not a stream":         {stream("text", "g"), broker.ClassInvalid, "WRONGTYPE"},
		"an unsupported URL scheme":          {list(broker.Credentials{URL: "http://x"}, "jobs"), broker.ClassInvalid, "url has an unsupported scheme"},
		"an invalid URL":                     {list(broker.Credentials{URL: "redis://me:hidden@%zz"}, "jobs"), broker.ClassInvalid, "url is not a valid URL"},
		"a URL without a host":               {list(broker.Credentials{URL: "redis://"}, "jobs"), broker.ClassInvalid, "url has no host"},
		"a URL with a path":                  {list(broker.Credentials{URL: s.URL() + "/x"}, "jobs"), broker.ClassInvalid, "not a database number"},
		"TLS on some servers only":           {list(broker.Credentials{URL: "redis://a,rediss://b"}, "jobs"), broker.ClassInvalid, "with TLS (rediss) and without"},
		"a database number with a cluster":   {list(broker.Credentials{URL: "redis://a/1,redis://b"}, "jobs"), broker.ClassInvalid, "a cluster has only 0"},
		"a TLS Secret and a URL without TLS": {list(broker.Credentials{URL: s.URL(), TLS: &broker.TLS{}}, "jobs"), broker.ClassInvalid, "must be rediss"},
	} {
		t.Run(name, func(t *testing.T) {
			err := row.read(t)
			require.ErrorContains(t, err, row.wantError)
			require.True(t, broker.ClassOf(err) == row.want && !strings.Contains(err.Error(), "hidden"), "%v is %s, want %s", err, broker.ClassOf(err), row.want)
		})
	}
}

func TestTLSAndThePasswordAreThoseOfTheURLOrTheSecret(t *testing.T) {
	t.Parallel()
	certificate, key := certtest.NewCertificate(t)
	dir, port := t.TempDir(), ports.Reserve(t)
	for name, content := range map[string][]byte{"/crt": certificate, "/key": key} {
		require.NoError(t, os.WriteFile(dir+name, content, 0o600))
	}
	files := []string{"--tls-cert-file", dir + "/crt", "--tls-key-file", dir + "/key", "--tls-ca-cert-file", dir + "/crt"}
	redistest.Start(t, append(files, "--tls-port", fmt.Sprint(port.Port()))...)
	locked, secure := redistest.Start(t, "--requirepass", "hidden"), "rediss://"+port.String()
	type read = func(*testing.T, broker.Credentials, string) (backlog.Reading, error)
	for name, row := range map[string]struct {
		access broker.Credentials
		want   broker.ErrorClass
	}{
		"the password of the URL":       {broker.Credentials{URL: "redis://:hidden@" + locked.Address()}, ""},
		"the password of the Secret":    {broker.Credentials{URL: "redis://:wrong@" + locked.Address(), Username: "default", Password: "hidden"}, ""},
		"with a client certificate":     {broker.Credentials{URL: secure, TLS: &broker.TLS{CA: certificate, Certificate: certificate, Key: key}}, ""},
		"without a client certificate":  {broker.Credentials{URL: secure, TLS: &broker.TLS{CA: certificate}}, broker.ClassUnauthorized},
		"unknown certificate authority": {broker.Credentials{URL: secure}, broker.ClassUnauthorized},
		"invalid certificate authority": {broker.Credentials{URL: secure, TLS: &broker.TLS{CA: []byte("x")}}, broker.ClassInvalid},
	} {
		for how, read := range map[string]read{"worker": readList, "operator": readBoundedList} {
			t.Run(name+", "+how, func(t *testing.T) {
				_, err := read(t, row.access, "jobs")
				isRight := err == nil && row.want == "" || err != nil && broker.ClassOf(err) == row.want
				if errors.Is(err, syscall.ECONNRESET) { // the server closed the connection before the client read why
					isRight = row.want == broker.ClassUnauthorized
				}
				require.True(t, isRight, "%v is %s, want %s", err, broker.ClassOf(err), row.want)
			})
		}
	}
}

func TestListInARedisCluster(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--cluster-enabled", "yes")
	s.RunCLI("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	for s.RunCLI("CLUSTER", "INFO")[:len("cluster_state:ok")] != "cluster_state:ok" {
		require.True(t, t.Context().Err() == nil, "the cluster does not come up")
	}
	s.RunCLI("LPUSH", "jobs", "x")
	stopped := redistest.Start(t)
	stopped.Stop()
	require.Equal(t, 1, require.Call(readBoundedList(t, broker.Credentials{URL: stopped.URL() + ", " + s.URL()}, "jobs")).Succeeds(t).Backlog)
}

func TestConnectionIsNamed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	list := require.Call(NewListSource(t.Context(), broker.Credentials{URL: s.URL(), Name: "a worker\n"}, "jobs")).Succeeds(t)
	defer list.Disconnect()
	require.Contains(t, s.RunCLI("CLIENT", "LIST"), "name=a-worker- ")
}
