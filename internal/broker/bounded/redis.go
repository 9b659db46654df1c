package bounded

import (
	"bytes"
	"net"
	"strconv"

	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	// maxRedisLine bounds a line of the Redis protocol, for example an error, in bytes.
	maxRedisLine = 64 << 10
	// maxRedisDepth bounds nested arrays, which the client library decodes recursively.
	maxRedisDepth = 32
	// redisElementMemory is the memory that a decoded element of an array may need, in bytes.
	redisElementMemory = 64
)

var errNotRedis = broker.Errorf(broker.ClassUnreachable, "the connection was closed: the server does not follow the Redis protocol")

// GuardRedis checks the replies of a Redis server, and calls answered after the first reply. The stream is raw, or TLS over raw. A raw
// connection that no Dialer opened is not checked.
func GuardRedis(raw, stream net.Conn, answered func()) net.Conn {
	return guard(raw, stream, &redisFraming{answered: answered})
}

// redisFraming follows the replies of the Redis protocol, in version 2 or 3.
type redisFraming struct {
	answered func()
	line     []byte // the received part of a line
	// bulk is the number of missing bytes of a string.
	bulk int64
	// open has the number of missing elements of each array that contains the next element.
	open   []int64
	needed int64
}

func (f *redisFraming) read(data []byte) (int64, error) {
	for len(data) > 0 {
		if f.bulk > 0 {
			n := min(f.bulk, int64(len(data)))
			data = data[n:]
			if f.bulk -= n; f.bulk == 0 {
				f.endElement()
			}
			continue
		}
		end := bytes.IndexByte(data, '\n') + 1
		if end == 0 {
			end = len(data)
		}
		if f.line = append(f.line, data[:end]...); len(f.line) > maxRedisLine {
			return 0, errReplyTooLong
		}
		if data = data[end:]; f.line[len(f.line)-1] == '\n' {
			if err := f.endLine(); err != nil {
				return 0, err
			}
		}
	}
	return f.needed + int64(len(f.line)), nil
}

func (f *redisFraming) endLine() error {
	line, terminated := bytes.CutSuffix(f.line, []byte("\r\n"))
	f.line = f.line[:0]
	if !terminated || len(line) == 0 {
		return errNotRedis
	}
	f.needed += int64(len(line))
	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		f.endElement()
		return nil
	case '$', '=', '!':
		size, err := announcedLength(line[1:])
		switch {
		case err != nil:
			return err
		case size < 0:
			f.endElement()
			return nil
		}
		f.bulk, f.needed = size+2, f.needed+size
		return f.checkNeeded()
	case '*', '~':
		return f.startArray(line[1:], 1)
	case '%':
		return f.startArray(line[1:], 2)
	}
	return errNotRedis // for example a push message, to which nobody subscribes
}

func (f *redisFraming) startArray(announced []byte, elementsPerEntry int64) error {
	entries, err := announcedLength(announced)
	switch {
	case err != nil:
		return err
	case entries <= 0:
		f.endElement()
		return nil
	case len(f.open) == maxRedisDepth:
		return errReplyTooLong
	}
	f.open = append(f.open, entries*elementsPerEntry)
	f.needed += entries * elementsPerEntry * redisElementMemory
	return f.checkNeeded()
}

func (f *redisFraming) checkNeeded() error {
	if f.needed > maxReply {
		return errReplyTooLong
	}
	return nil
}

// announcedLength returns -1 for a null value.
func announcedLength(text []byte) (int64, error) {
	switch length, err := strconv.ParseInt(string(text), 10, 64); {
	case err != nil || length < -1:
		return 0, errNotRedis
	case length > maxReply:
		return 0, errReplyTooLong
	default:
		return length, nil
	}
}

// endElement ends an element, and the arrays of which it was the last element.
func (f *redisFraming) endElement() {
	for len(f.open) > 0 {
		last := len(f.open) - 1
		f.open[last]--
		if f.open[last] > 0 {
			return
		}
		f.open = f.open[:last]
	}
	if f.needed = 0; f.answered != nil {
		f.answered()
		f.answered = nil
	}
}

func (*redisFraming) isRequest([]byte) bool { return true }
