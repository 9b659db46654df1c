package bounded

import (
	"bytes"
	"math"
	"net"
	"strconv"

	"golang.org/x/time/rate"

	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	// maxNATSLine bounds a line of the NATS protocol, in bytes. The longest line is INFO, with the addresses of all servers of a cluster.
	maxNATSLine = 32 << 10
	// maxNATSInfos bounds how many INFO lines, which are JSON documents, a server sends at once. It sends one when the cluster changes.
	maxNATSInfos = 32
	// maxNATSHeader bounds the header of a message, in bytes: its lines need much more memory when they are decoded.
	maxNATSHeader = 64 << 10
	// jsonElementMemory is the memory that a decoded element of a JSON document may need, in bytes.
	jsonElementMemory = 128
)

var errNotNATS = broker.Errorf(broker.ClassUnreachable, "the connection was closed: the server does not follow the NATS protocol")

// GuardNATS checks the messages of a NATS server. The stream is raw, or TLS over raw. A raw connection that no Dialer opened is not
// checked.
func GuardNATS(raw, stream net.Conn) net.Conn { return guard(raw, stream, newNATSFraming()) }

// natsFraming follows the control lines and payloads of the NATS protocol. It is stricter than the client library, so that both always
// agree on the start of a payload.
type natsFraming struct {
	line []byte // the received part of a control line
	// payload is the number of missing bytes of the payload.
	payload int64
	// isPayloadEnd: the next line is the empty line after a payload.
	isPayloadEnd bool
	needed       int64
	infos        *rate.Limiter
	// canBeJSON: the payload is a response of JetStream if it starts with a brace.
	canBeJSON, isJSON bool
}

func newNATSFraming() *natsFraming {
	return &natsFraming{infos: rate.NewLimiter(1, maxNATSInfos)}
}

func (f *natsFraming) read(data []byte) (int64, error) {
	for len(data) > 0 {
		if f.payload > 0 {
			data = data[f.readPayload(data):]
			continue
		}
		end := bytes.IndexByte(data, '\n') + 1
		if end == 0 {
			end = len(data)
		}
		if f.line = append(f.line, data[:end]...); len(f.line) > maxNATSLine {
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

// readPayload returns how much of the data belongs to the payload.
func (f *natsFraming) readPayload(data []byte) int64 {
	if f.canBeJSON {
		f.canBeJSON, f.isJSON = false, data[0] == '{'
	}
	n := min(f.payload, int64(len(data)))
	if f.isJSON {
		f.needed += jsonElementMemory * int64(bytes.Count(data[:n], []byte{','}))
	}
	f.payload -= n
	return n
}

func (f *natsFraming) endLine() error {
	line, terminated := bytes.CutSuffix(f.line, []byte("\r\n"))
	f.line = f.line[:0]
	if !terminated || bytes.IndexByte(line, '\r') >= 0 {
		return errNotNATS
	}
	if f.isPayloadEnd {
		if len(line) > 0 {
			return errNotNATS
		}
		f.isPayloadEnd, f.needed = false, 0
		return nil
	}
	operation := line
	if end := bytes.IndexAny(line, natsSpaces); end >= 0 {
		operation = line[:end]
	}
	rest, size := cutLastField(line)
	switch {
	case bytes.EqualFold(operation, []byte("MSG")):
		return f.startPayload(nil, size)
	case bytes.EqualFold(operation, []byte("HMSG")):
		_, header := cutLastField(rest)
		return f.startPayload(header, size)
	case bytes.EqualFold(operation, []byte("INFO")) && !f.infos.Allow():
		return errReplyTooLong
	}
	return nil
}

const natsSpaces = " \t"

// cutLastField allocates nothing, because a server can send millions of lines.
func cutLastField(line []byte) (rest, field []byte) {
	line = bytes.TrimRight(line, natsSpaces)
	i := bytes.LastIndexAny(line, natsSpaces) + 1
	return line[:i], line[i:]
}

func (f *natsFraming) startPayload(header, size []byte) error {
	headerSize, payload := int64(0), announcedSize(size)
	if header != nil {
		headerSize = announcedSize(header)
	}
	if headerSize > maxNATSHeader || payload > maxReply {
		return errReplyTooLong
	}
	f.payload, f.isPayloadEnd, f.needed = payload, true, max(payload, 1)
	f.canBeJSON, f.isJSON = header == nil, false
	return nil
}

// announcedSize returns the maximum for a text that is not a number, which the client library rejects too.
func announcedSize(text []byte) int64 {
	size, err := strconv.ParseUint(string(text), 10, 62)
	if err != nil {
		return math.MaxInt64
	}
	return int64(size)
}

var pong = []byte("PONG\r\n")

// isRequest reports false for the responses to pings, of which a server can send any number.
func (*natsFraming) isRequest(data []byte) bool {
	return len(bytes.ReplaceAll(data, pong, nil)) > 0
}
