package jetstream

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// storedMessage is a message as the leader of a stream has it.
type storedMessage struct {
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"seq"`
	Headers  []byte    `json:"hdrs"`
	Data     []byte    `json:"data"`
	Time     time.Time `json:"time"`
}

// headers returns the headers in the spelling of the producer or the server.
func (m *storedMessage) headers() nats.Header {
	headers := nats.Header{}
	for line := range strings.SplitSeq(string(m.Headers), "\r\n") {
		if name, value, found := strings.Cut(line, ":"); found {
			headers[name] = append(headers[name], strings.TrimSpace(value))
		}
	}
	return headers
}

func (m *storedMessage) isDeletedKey() bool {
	headers := m.headers()
	return headers.Get(keyOperationHeader) != "" || headers.Get(jetstream.MarkerReasonHeader) != ""
}

const keyOperationHeader = "KV-Operation"

// readLast returns the last message with a subject, as the leader of the stream has it, because a replica may be late. It returns nil
// if there is no such message.
func (e *Engine) readLast(ctx context.Context, stream, subject string) (*storedMessage, error) {
	return e.readMessage(ctx, stream, map[string]any{"last_by_subj": subject})
}

// readSequence returns the message with a number. It returns nil if there is no such message.
func (e *Engine) readSequence(ctx context.Context, stream string, sequence uint64) (*storedMessage, error) {
	return e.readMessage(ctx, stream, map[string]any{"seq": sequence})
}

// request sends a request to JetStream. Like the client library, it waits a limited time without a deadline, because a server that ends has
// no answer.
func (e *Engine) request(ctx context.Context, api string, body []byte) (*nats.Msg, error) {
	if _, set := ctx.Deadline(); !set {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, dialTimeout)
		defer cancel()
	}
	return e.nc.RequestWithContext(ctx, e.apiPrefix()+api, body)
}

func (e *Engine) readMessage(ctx context.Context, stream string, request map[string]any) (*storedMessage, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	reply, err := e.request(ctx, "STREAM.MSG.GET."+stream, body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message storedMessage       `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return nil, fmt.Errorf("the server's answer is invalid: %w", err)
	}
	switch {
	case answer.Error == nil:
		return &answer.Message, nil
	case answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil //nolint:nilnil // nil means that there is no such message
	}
	return nil, answer.Error
}

func (e *Engine) store(ctx context.Context, message *nats.Msg) (answer, error) {
	reply, err := e.nc.RequestMsgWithContext(ctx, message)
	if err != nil {
		return answer{}, err
	}
	a, err := decodeAnswer(reply)
	if err == nil && a.Error != nil {
		return answer{}, a.Error
	}
	return a, err
}

// writeLast stores a message. It fails with broker.ErrKeyChanged if the last message with the same subject has another number; 0:
// there must be no such message.
func (e *Engine) writeLast(ctx context.Context, stream string, message *nats.Msg, last uint64) (sequence uint64, err error) {
	if message.Header == nil {
		message.Header = nats.Header{}
	}
	message.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(last, 10))
	a, err := e.store(ctx, message)
	refused := (*jetstream.APIError)(nil)
	switch {
	case errors.As(err, &refused) && isSubjectTaken(refused):
		return 0, broker.ErrKeyChanged
	case err != nil:
		return 0, err
	case a.Stream != stream:
		return 0, broker.Errorf(broker.ClassInvalid, "the stream %s received the entry, should be %s", broker.TruncateText(a.Stream), stream)
	}
	return a.Sequence, nil
}

// keyToken returns an ID as a token of a key. An ID that cannot be a token is encoded, after a character with which no other token
// begins.
func keyToken(id string) string {
	if isName(id) {
		return id
	}
	return "=" + base64.RawURLEncoding.EncodeToString([]byte(id))
}

func idFromToken(token string) (id string, valid bool) {
	encoded, isEncoded := strings.CutPrefix(token, "=")
	if !isEncoded {
		return token, isName(token)
	}
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	return string(raw), err == nil && broker.IsIdentifier(string(raw))
}
