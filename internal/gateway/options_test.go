package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
		require.ErrorContains(t, err, message)
	}
	_, err = ParseFlags(nil, []string{"YARDMASTER_AUDIENCES=jobs"}, io.Discard)
	require.ErrorContains(t, err, "no flag --audiences")
}

func TestACertificateMayArriveLateAndChange(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting, found := make(chan struct{}, 1), make(chan *tls.Config)
	log := slog.New(slog.NewTextHandler(writerFunc(func([]byte) { waiting <- struct{}{} }), nil))
	go func() {
		config, err := waitForCertificate(ctx, directory, log)
		if err != nil {
			t.Error(err)
		}
		found <- config
	}()
	<-waiting
	writeCertificate(t, directory)
	config := <-found
	leaf := func() []byte {
		c, err := config.GetCertificate(nil)
		require.NoError(t, err)
		return c.Certificate[0]
	}
	first := leaf()
	writeCertificate(t, directory)
	// A volume replaces both files at once; here, events of each file are read until they match.
	poll.Until(t, "the new certificate to be served", func() bool {
		now := time.Now()
		_ = os.Chtimes(filepath.Join(directory, "tls.crt"), now, now)
		return !bytes.Equal(first, leaf())
	})
}

type writerFunc func([]byte)

func (w writerFunc) Write(line []byte) (int, error) { w(line); return len(line), nil }
