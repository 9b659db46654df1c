package page

import (
	"bytes"
	"unicode"

	g "maragu.dev/gomponents"
)

// Render returns the HTML of a page, without control and format characters, which could hide or reorder text, or end an event of a
// stream.
func Render(node g.Node) ([]byte, error) {
	var out bytes.Buffer
	if err := node.Render(&out); err != nil {
		return nil, err
	}
	return bytes.Map(func(r rune) rune {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		default:
			return unicode.ReplacementChar
		}
	}, out.Bytes()), nil
}
