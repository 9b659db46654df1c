package gateway

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestFlagsAreReadFromArgumentsAndTheEnvironment(t *testing.T) {
	t.Parallel()
	environment := []string{"YARDMASTER_BROKER_URL_SECRET=nats/address", "YARDMASTER_OPERATOR_NAMESPACE=system", "YARDMASTER_AUDIENCE=ignored"}
	got, err := ParseFlags([]string{"--audience=jobs", "--max-body-bytes=2097152", "--certificate-dir="}, environment, io.Discard)
	require.NoError(t, err)
	want := Options{
		Address: ":8443", HealthAddress: ":8081", MetricsAddress: ":9464", Audience: "jobs", MaxBodyBytes: 2 << 20,
		DrainTimeout: handleTimeout, Namespace: "system",
	}
	want.Broker.Engine, want.Broker.URLSecret = "NATS", "nats/address"
	require.Equal(t, want, got)
	for arguments, message := range map[string]string{
		"--audience=":              "--audience is empty",
		"--max-body-bytes=0":       "--max-body-bytes is 0",
		"--max-body-bytes=9000000": "--max-body-bytes is 9000000",
		"--broker-url-secret=nats": "needs --operator-namespace",
		"--broker-engine=kafka":    "--broker-engine",
		"serve":                    `unexpected argument "serve"`,
		"--audiences=jobs":         "not defined: -audiences",
	} {
		_, err := ParseFlags(strings.Fields(arguments), nil, io.Discard)
		require.True(t, err != nil && strings.Contains(err.Error(), message), "%s: error %v, want %q", arguments, err, message)
	}
	_, err = ParseFlags(nil, []string{"YARDMASTER_AUDIENCES=jobs"}, io.Discard)
	require.ErrorContains(t, err, "no flag --audiences")
}

func TestACertificateMayArriveLateAndChange(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting := make(chan struct{}, 1)
	log := slog.New(slog.NewTextHandler(writerFunc(func([]byte) { waiting <- struct{}{} }), nil))
	type result struct {
		leaf func() []byte
		err  error
	}
	found := make(chan result)
	go func() {
		config, err := waitForCertificate(ctx, directory, log)
		found <- result{func() []byte {
			c, err := config.GetCertificate(nil)
			if err != nil {
				t.Error(err)
				return nil
			}
			return c.Certificate[0]
		}, err}
	}()
	<-waiting
	writeCertificate(t, directory)
	r := <-found
	if r.err != nil {
		t.Fatal(r.err)
	}
	first := r.leaf()
	writeCertificate(t, directory)
	// A volume replaces both files at once; here, events of each file are read until they match.
	poll.Until(t, "the new certificate to be served", func() bool {
		now := time.Now()
		_ = os.Chtimes(filepath.Join(directory, "tls.crt"), now, now)
		return !cmp.Equal(first, r.leaf())
	})
}

type writerFunc func([]byte)

func (w writerFunc) Write(line []byte) (int, error) { w(line); return len(line), nil }
