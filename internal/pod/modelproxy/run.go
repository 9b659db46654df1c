package modelproxy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

const (
	// Port on which the proxy listens, on the loopback address of the Pod.
	Port = 9471
	// TokenFile has the token of the Pod, in a directory that the agent's container mounts read-only.
	TokenFile = "token"
	// URL of the proxy in its Pod.
	URL = "http://127.0.0.1:9471"

	ledgerFile = "ledger.json"
	// messageBytes is the length of the message for the operator. It is always overwritten as a whole, by one write, because the
	// kubelet reads it after the container was killed in whatever moment.
	messageBytes = 256
	memoryLimit  = 200 << 20
)

type options struct {
	provider, url, prices, keys, directory, ledger, message, address string

	limit float64
}

// KeyOf returns the key of a Secret with the key of a provider, and the variable in which its clients expect it.
func KeyOf(name string) string {
	if p := providers[name]; p != nil {
		return p.key
	}
	return ""
}

// Run is the program: it serves the agent until SIGTERM.
func Run(ctx context.Context, args []string, _ func(string) string, errOut io.Writer) error {
	debug.SetMemoryLimit(memoryLimit)
	o := &options{}
	f := flag.NewFlagSet("session-runner model", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&o.provider, "provider", "", "Anthropic, OpenAI or Google.")
	f.StringVar(&o.url, "base-url", "", "URL of the API, without its version. Defaults to the provider's.")
	f.StringVar(&o.keys, "keys", "/etc/agentic-model", "Directory with the key of the provider.")
	f.StringVar(&o.prices, "prices", "", "File with prices of models. Defaults to the built-in prices.")
	f.Float64Var(&o.limit, "limit-usd", math.Inf(1), "What the attempt may cost. Defaults to no limit.")
	f.StringVar(&o.directory, "directory", "/model", "Directory for the token. The agent's container mounts it read-only.")
	f.StringVar(&o.ledger, "ledger", "/ledger", "Directory for what was spent. No other container mounts it.")
	f.StringVar(&o.message, "message", "/dev/termination-log", "File for the report to the operator.")
	f.StringVar(&o.address, "address", fmt.Sprintf("127.0.0.1:%d", Port), "Address to listen on.")
	if err := f.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	p, err := o.newProxy(slog.New(slog.NewJSONHandler(errOut, nil)))
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.address)
	if err != nil {
		return err
	}
	// The agent waits for this file, so the proxy listens when the agent sends its first request.
	if err := writeFile(filepath.Join(o.directory, TokenFile), []byte(p.token), 0o444); err != nil {
		return err
	}
	server := &http.Server{Handler: p, ReadHeaderTimeout: p.limits.readTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	const grace = 2 * time.Second // the agent has ended: what is still open is aborted
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(ending); err != nil {
		return server.Close()
	}
	return nil
}

func (o *options) newProxy(log *slog.Logger) (*proxy, error) {
	p := &proxy{provider: providers[o.provider], limits: defaultLimits, log: log}
	if p.provider == nil {
		return nil, fmt.Errorf("--provider is %q, it must be Anthropic, OpenAI or Google", o.provider)
	}
	if o.url == "" {
		o.url = p.provider.url
	}
	var err error
	if p.url, err = url.Parse(o.url); err != nil {
		return nil, fmt.Errorf("--base-url: %w", err)
	}
	raw := defaultPrices
	if o.prices != "" {
		if raw, err = os.ReadFile(o.prices); err != nil {
			return nil, err
		}
	}
	if p.prices, err = ParsePrices(raw); err != nil {
		return nil, fmt.Errorf("the prices of models: %w", err)
	}
	p.key = func() (string, error) {
		key, err := os.ReadFile(filepath.Join(o.keys, p.provider.key))
		return strings.TrimSpace(string(key)), err
	}
	if p.token, err = o.readToken(); err != nil {
		return nil, err
	}
	p.transport = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: defaultLimits.requests, IdleConnTimeout: time.Minute}
	p.ledger, err = o.openLedger()
	return p, err
}

// readToken returns the token of the Pod, which stays the same after a restart of the container: the agent has it.
func (o *options) readToken() (string, error) {
	const tokenBytes = 32
	if raw, err := os.ReadFile(filepath.Join(o.directory, TokenFile)); err == nil && len(raw) == hex.EncodedLen(tokenBytes) {
		return string(raw), nil
	}
	raw := make([]byte, tokenBytes)
	_, err := rand.Read(raw)
	return hex.EncodeToString(raw), err
}

// openLedger continues with the ledger of the container before its restart.
func (o *options) openLedger() (*ledger, error) {
	path := filepath.Join(o.ledger, ledgerFile)
	before := state{}
	raw, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(raw, &before); err != nil {
			return nil, fmt.Errorf("reading the ledger: %w", err)
		}
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	message, err := os.OpenFile(o.message, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	store := func(s state) error {
		raw, err := json.Marshal(s)
		if err != nil {
			return err
		}
		if err := writeFile(path, raw, 0o600); err != nil {
			return err
		}
		report, err := json.Marshal(s.report())
		if err != nil {
			return err
		}
		_, err = message.WriteAt(fmt.Appendf(nil, "%-*s", messageBytes, report), 0)
		return err
	}
	limit := int64(0)
	before.Limited = !math.IsInf(o.limit, 0)
	if before.Limited {
		limit = int64(math.Floor(o.limit*microsPerDollar + 0.5)) //nolint:mnd // rounds
	}
	return newLedger(limit, before, store)
}

// writeFile replaces a file as a whole.
func writeFile(path string, content []byte, mode os.FileMode) error {
	temp := path + ".new"
	_ = os.Remove(temp)
	if err := os.WriteFile(temp, content, mode); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
