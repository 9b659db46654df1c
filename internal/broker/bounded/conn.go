package bounded

import (
	"cmp"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	// maxReply is the maximum number of bytes that a server sends for a request, and the maximum memory for a message.
	maxReply = 8 << 20
	// messageTimeout is the maximum time between the first and the last byte of a message.
	messageTimeout = 5 * time.Second
	// freeMemory is the memory of each connection without a reservation, in bytes.
	freeMemory = 64 << 10
)

// The errors of connections that were closed.
var (
	errReplyTooLong = broker.Errorf(broker.ClassUnreachable, "the connection was closed: the server sent or announced more than %d MiB for one request", maxReply>>20)
	errTooSlow      = broker.Errorf(broker.ClassUnreachable, "the connection was closed: a message took longer than %s", messageTimeout)
	errNoMemory     = broker.Errorf(broker.ClassUnreachable, "the connection was closed: all messages that are arriving now exceed the memory for them")
)

// A framing follows the messages in the bytes that a server sends.
type framing interface {
	// read consumes bytes. It returns the memory that the last message needs if these bytes end within the message, else 0.
	read(data []byte) (needed int64, err error)
	// isRequest reports whether the client sends more than replies that the server can provoke.
	isRequest(data []byte) bool
}

// Conn is a connection with budgets.
type Conn struct {
	net.Conn
	tenant  string
	memory  *memory
	framing framing // nil for a protocol whose client library bounds messages
	// isWrapped: another Conn around this Conn has the budgets.
	isWrapped bool
	// manualBudget replaces maxReply if only Renew starts a request; 0 if each write starts a request.
	manualBudget int64

	mu              sync.Mutex
	received        int64 // since the last request
	reserved        int64
	readDeadline    time.Time // set by the client library
	messageDeadline time.Time // zero between messages
	isClosed        bool
}

// rawConn is a Conn without TLS. Redis clients check with a system call whether an idle connection has ended.
type rawConn struct {
	*Conn
	socket syscall.Conn
}

// SyscallConn implements syscall.Conn.
func (c rawConn) SyscallConn() (syscall.RawConn, error) { return c.socket.SyscallConn() }

// guard returns a connection that checks the framing of the stream, which is raw, or TLS over raw. If raw has no budgets, it returns
// the stream.
func guard(raw, stream net.Conn, f framing) net.Conn {
	budgeted, hasBudgets := raw.(*Conn)
	if !hasBudgets {
		return stream
	}
	budgeted.isWrapped = true
	guarded := &Conn{Conn: stream, tenant: budgeted.tenant, memory: budgeted.memory, framing: f}
	if socket, isSocket := budgeted.Conn.(syscall.Conn); isSocket && stream == raw {
		return rawConn{guarded, socket}
	}
	return guarded
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.isWrapped {
		return n, err
	}
	if n > 0 {
		if exceeded := c.account(p[:n]); exceeded != nil {
			c.closeFor(exceeded)
			return 0, exceeded
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && c.isMessageOverdue() {
		c.closeFor(errTooSlow)
		return 0, errTooSlow
	}
	return n, err
}

// account checks received bytes against the budgets, before the client library reads them.
func (c *Conn) account(data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.received += int64(len(data)); {
	case c.isClosed:
		return net.ErrClosed // a reservation would never be released
	case c.received > cmp.Or(c.manualBudget, maxReply):
		return errReplyTooLong
	case c.framing == nil:
		return nil
	}
	needed, err := c.framing.read(data)
	if err != nil {
		return err
	}
	if needed > maxReply {
		return errReplyTooLong
	}
	reserved := max(needed-freeMemory, 0)
	if reserved != c.reserved {
		if !c.memory.resize(c.tenant, c.reserved, reserved) {
			return errNoMemory
		}
		c.reserved = reserved
	}
	isPending := needed > 0
	if isPending != c.messageDeadline.IsZero() {
		return nil // the deadline does not change
	}
	c.messageDeadline = time.Time{}
	if isPending {
		c.messageDeadline = time.Now().Add(messageTimeout)
	}
	return c.Conn.SetReadDeadline(c.effectiveDeadline())
}

func (c *Conn) effectiveDeadline() time.Time {
	if c.readDeadline.IsZero() || !c.messageDeadline.IsZero() && c.messageDeadline.Before(c.readDeadline) {
		return c.messageDeadline
	}
	return c.readDeadline
}

func (c *Conn) isMessageOverdue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.messageDeadline.IsZero() && !time.Now().Before(c.messageDeadline)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readDeadline = t
	return c.Conn.SetReadDeadline(c.effectiveDeadline())
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	if c.manualBudget == 0 && (c.framing == nil || c.framing.isRequest(p)) {
		c.Renew()
	}
	return c.Conn.Write(p)
}

// Renew starts a request, whose reply can use the whole budget.
func (c *Conn) Renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = 0
}

// RenewManually sets the budget for the reply of a request, in bytes, and makes each request start with Renew. Otherwise, each write
// starts a request, and a server can provoke writes in some protocols.
func (c *Conn) RenewManually(budget int64) { c.manualBudget = budget }

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.memory.resize(c.tenant, c.reserved, 0)
	c.reserved, c.isClosed = 0, true
	c.mu.Unlock()
	return c.Conn.Close()
}

const (
	// totalMemory is the memory for messages that are arriving on all connections, in bytes.
	totalMemory = 16 << 20
	// tenantMemory is the part of totalMemory that a tenant can use.
	tenantMemory = 8 << 20
)

type memory struct {
	mu    sync.Mutex
	total int64
	used  map[string]int64 // by tenant
}

func newMemory() *memory { return &memory{used: map[string]int64{}} }

// resize changes a reservation. It reports false, and changes nothing, if that exceeds the budget.
func (m *memory) resize(tenant string, from, to int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	change := to - from
	if change > 0 && (m.total+change > totalMemory || m.used[tenant]+change > tenantMemory) {
		return false
	}
	m.total += change
	if m.used[tenant] += change; m.used[tenant] == 0 {
		delete(m.used, tenant)
	}
	return true
}
