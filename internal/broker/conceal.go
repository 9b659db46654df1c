package broker

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"regexp"
	"strings"
)

// DialFunc opens a connection, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// ErrAddressDenied means that the URL itself, and not a name that it contains, has an address to which the operator does not connect.
var ErrAddressDenied = Errorf(ClassInvalid, "the operator does not connect to this address: it is a loopback, link-local, "+
	"metadata, multicast or unspecified address, an address of the operator, or denied by the operator's flag --deny-cidrs")

// ErrUnreachable is the only error until a server answers in the expected protocol.
var ErrUnreachable = Errorf(ClassUnreachable, "unreachable: no server answered in the expected protocol; "+
	"check the address, the TLS settings and the network policies")

const redacted = "[redacted]"

// minRedactedLength is the minimum length of redacted values, in bytes. Shorter values occur in too many words.
const minRedactedLength = 4

// Conceal returns the error that the users who chose the URL may read, if ConcealCauses is set. Until the server has answered in its
// protocol, causes would reveal what listens at addresses that these users cannot reach. Then, the error has no address and no secret.
func (c *Credentials) Conceal(err error, answered bool) error {
	switch {
	case err == nil || !c.ConcealCauses:
		return err
	case errors.Is(err, ErrAddressDenied):
		return ErrAddressDenied
	case !answered:
		return ErrUnreachable
	}
	original := err.Error()
	text := truncate(c.redact(withoutPeer(err)), maxErrorLength)
	if text == original {
		return err
	}
	class := ClassOf(err)
	if class == ClassUnknown {
		class = NetworkErrorClass(err)
	}
	return Errorf(class, "%s", text)
}

// withoutPeer returns the text of an error without the server's address and the names in its certificate.
func withoutPeer(err error) string {
	text := err.Error()
	if operation := (*net.OpError)(nil); errors.As(err, &operation) && operation.Err != nil {
		text = strings.ReplaceAll(text, operation.Error(), operation.Err.Error())
	}
	if name := (x509.HostnameError{}); errors.As(err, &name) {
		text = strings.ReplaceAll(text, name.Error(), "the server's certificate is not valid for the host of the URL")
	}
	if authority := (x509.UnknownAuthorityError{}); errors.As(err, &authority) {
		text = strings.ReplaceAll(text, authority.Error(), "the server's certificate is signed by an unknown authority")
	}
	if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) {
		text = strings.ReplaceAll(text, invalid.Error(), "the server's certificate is not valid")
	}
	return text
}

// redact replaces the secret values of the credentials, which some servers quote in errors, and some client libraries in lower case.
// The text may end within a value.
func (c *Credentials) redact(text string) string {
	for _, secret := range c.secretValues() {
		if len(secret) < minRedactedLength {
			continue
		}
		text = regexp.MustCompile("(?i)"+regexp.QuoteMeta(secret)).ReplaceAllLiteralString(text, redacted)
		start, isCut := strings.CutSuffix(text, truncated)
		for n := len(secret) - 1; isCut && n >= minRedactedLength; n-- {
			if head := len(start) - n; head >= 0 && strings.EqualFold(start[head:], secret[:n]) {
				text = start[:head] + redacted
				break
			}
		}
	}
	return text
}

func (c *Credentials) secretValues() []string {
	values := []string{c.URL, c.Password, c.Token, c.Username}
	values = append(values, strings.Fields(string(c.NATSCredentials))...)
	values = append(values, strings.Fields(string(c.NKeySeed))...)
	if c.Sentinel != nil {
		values = append(values, c.Sentinel.Username, c.Sentinel.Password)
	}
	for text := range strings.SplitSeq(c.URL, ",") {
		parsed, err := url.Parse(strings.TrimSpace(text))
		if err != nil || parsed.User == nil {
			continue
		}
		password, _ := parsed.User.Password()
		values = append(values, parsed.User.String(), password, parsed.User.Username())
	}
	return values
}

// truncated marks the end of a text that was longer.
const truncated = "…"

const (
	// maxTextLength bounds a server's text in an error, in bytes.
	maxTextLength = 300
	// maxErrorLength bounds an error with several texts.
	maxErrorLength = 1000
)

// TruncateText limits the length of a text of a server, and replaces invalid UTF-8.
func TruncateText(text string) string { return truncate(text, maxTextLength) }

func truncate(text string, most int) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + truncated
	}
	return text
}
