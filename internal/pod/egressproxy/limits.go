package egressproxy

import (
	"sync"
	"time"
)

// Limits bound what sessions can occupy.
type Limits struct {
	// Session and Total are the numbers of tunnels of one session and of all.
	Session, Total int
	// Hello is the time from the start of a tunnel to its complete ClientHello.
	Hello time.Duration
	// Idle is the time without any data after which a tunnel is closed.
	Idle time.Duration
	// Lifetime is the time after which a tunnel is closed in any case.
	Lifetime time.Duration
	// Dial is the time for resolving a name and connecting.
	Dial time.Duration
}

// DefaultLimits are the limits of the program. A tunnel needs about 100 KiB.
var DefaultLimits = Limits{Session: 64, Total: 512, Hello: 10 * time.Second, Idle: 15 * time.Minute, Lifetime: 4 * time.Hour, Dial: 10 * time.Second}

// slots are the tunnels that sessions occupy.
type slots struct {
	mu       sync.Mutex
	limits   Limits
	total    int
	sessions map[string]int // by UID
}

// take occupies a slot for a session, unless it has all that it may have.
func (s *slots) take(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.limits.Total || s.sessions[session] >= s.limits.Session {
		return false
	}
	s.total++
	s.sessions[session]++
	return true
}

func (s *slots) release(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	s.sessions[session]--
	if s.sessions[session] == 0 {
		delete(s.sessions, session)
	}
}
