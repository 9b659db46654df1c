package redisclient

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/sync/singleflight"

	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	defaultSentinelPort = "26379"
	// sentinelTimeout is how long a Sentinel may take to answer, before the next Sentinel receives the request.
	sentinelTimeout = time.Second
	// lookupAge is how long an answer is used.
	lookupAge = 500 * time.Millisecond
	// maxHostLength bounds the host that a Sentinel names, in bytes.
	maxHostLength = 253
)

var errMasterChanged = broker.Errorf(broker.ClassUnreachable, "another server became the master")

// sentinelDialer connects to the server that Sentinels name as the master. When they name another server, it closes the connections to
// the previous master.
//
// The failover client of the client library is not used: it ends the process if a Sentinel answers with fewer values than expected,
// and connects to all addresses that a Sentinel calls Sentinels.
type sentinelDialer struct {
	credentials *broker.Credentials
	// options have the addresses of the Sentinels.
	options    *redis.UniversalOptions
	dialMaster broker.DialFunc
	lookups    singleflight.Group

	mu       sync.Mutex
	master   string
	lookupAt time.Time
	lastErr  error
	// first is the index of the Sentinel that answered last.
	first int
	conns map[*masterConn]struct{}
}

// newSentinelClient returns a client of the master. Options.Addrs are the addresses of the Sentinels.
func newSentinelClient(credentials *broker.Credentials, o *redis.UniversalOptions, answered *atomic.Bool) *redis.Client {
	d := &sentinelDialer{
		credentials: credentials, options: o, dialMaster: boundedDialer(credentials, o, answered), conns: map[*masterConn]struct{}{},
	}
	o.Dialer = d.dial
	client := redis.NewClient(o.Simple())
	client.AddHook(errorHook(d.checkMaster))
	return client
}

// lookupError is why the Sentinels name no master. It is concealed already, because the Sentinel and not the master has answered.
type lookupError struct{ error }

func (e *lookupError) Unwrap() error { return e.error }

func (d *sentinelDialer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	master, err := d.findMaster(ctx)
	if err != nil {
		return nil, &lookupError{err}
	}
	conn, err := d.dialMaster(ctx, network, master)
	if err != nil {
		return nil, err
	}
	tracked := &masterConn{Conn: conn, master: master, dialer: d}
	d.mu.Lock()
	isCurrent := d.master == master
	if isCurrent {
		d.conns[tracked] = struct{}{}
	}
	d.mu.Unlock()
	if !isCurrent {
		_ = conn.Close()
		return nil, errMasterChanged
	}
	if raw, isSocket := conn.(syscall.Conn); isSocket {
		return &checkableConn{tracked, raw}, nil
	}
	return tracked, nil
}

// findMaster returns the address of the master. Concurrent callers share an answer.
func (d *sentinelDialer) findMaster(ctx context.Context) (string, error) {
	lookup := d.lookups.DoChan("", func() (any, error) {
		d.mu.Lock()
		master, err, isFresh := d.master, d.lastErr, time.Since(d.lookupAt) < lookupAge
		d.mu.Unlock()
		if isFresh {
			return master, err
		}
		master, err = d.askSentinels(context.WithoutCancel(ctx))
		d.setMaster(master, err)
		return master, err
	})
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case found := <-lookup:
		master, _ := found.Val.(string)
		return master, found.Err
	}
}

// setMaster stores the answer of the Sentinels, and closes the connections to another server.
func (d *sentinelDialer) setMaster(master string, err error) {
	var old []*masterConn
	d.mu.Lock()
	d.lookupAt, d.lastErr = time.Now(), err
	if err == nil {
		d.master = master
		for conn := range d.conns {
			if conn.master != master {
				old = append(old, conn)
			}
		}
	}
	d.mu.Unlock()
	for _, conn := range old {
		_ = conn.Close()
	}
}

// askSentinels asks one Sentinel after the other.
func (d *sentinelDialer) askSentinels(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	d.mu.Lock()
	first := d.first
	d.mu.Unlock()
	var cause error
	for i := range d.options.Addrs {
		asked := (first + i) % len(d.options.Addrs)
		master, err := d.askSentinel(ctx, d.options.Addrs[asked])
		if err == nil {
			d.mu.Lock()
			d.first = asked
			d.mu.Unlock()
			return master, nil
		}
		if cause == nil || broker.ClassOf(cause) == broker.ClassUnreachable {
			cause = err
		}
	}
	return "", cause
}

func (d *sentinelDialer) askSentinel(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, sentinelTimeout)
	defer cancel()
	login := d.credentials.Sentinel // reading the current login can fail while files are replaced
	if d.credentials.Refresh != nil {
		if now, err := d.credentials.Refresh(); err == nil && now.Sentinel != nil {
			login = now.Sentinel
		}
	}
	answered := &atomic.Bool{}
	client := redis.NewSentinelClient(&redis.Options{
		Addr: address, Dialer: boundedDialer(d.credentials, d.options, answered), Username: login.Username, Password: login.Password,
		Protocol: 2, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, ContextTimeoutEnabled: true,
		DialTimeout: sentinelTimeout, ReadTimeout: sentinelTimeout, WriteTimeout: sentinelTimeout,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = client.Close() }()
	found, err := client.GetMasterAddrByName(ctx, login.MasterName).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "", broker.Errorf(broker.ClassInvalid, "the Sentinels monitor no master with the name in sentinel.masterName")
	case err != nil:
		return "", d.credentials.Conceal(ClassifyError("asking a Sentinel for the master", err), answered.Load())
	}
	return masterAddress(found)
}

func masterAddress(answer []string) (string, error) {
	if len(answer) == 2 {
		port, err := strconv.ParseUint(answer[1], 10, 16)
		if err == nil && port > 0 && answer[0] != "" && len(answer[0]) <= maxHostLength {
			return net.JoinHostPort(answer[0], strconv.FormatUint(port, 10)), nil
		}
	}
	return "", broker.Errorf(broker.ClassUnreachable, "a Sentinel did not answer with the host and the port of the master")
}

// checkMaster looks for another master after an error, because each connection to a server that no longer responds would otherwise
// cause another error, after a timeout.
func (d *sentinelDialer) checkMaster(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && !errors.Is(err, redis.ErrClosed) && broker.ClassOf(ClassifyError("", err)) == broker.ClassUnreachable {
		_, _ = d.findMaster(ctx) // the next request reports an error
	}
	return err
}

// masterConn is a connection that ends when another server becomes the master.
type masterConn struct {
	net.Conn
	master string
	dialer *sentinelDialer
}

// Close implements net.Conn.
func (c *masterConn) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.conns, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}

// checkableConn keeps the method with which the client library detects that an idle connection ended.
type checkableConn struct {
	*masterConn
	syscall.Conn
}
