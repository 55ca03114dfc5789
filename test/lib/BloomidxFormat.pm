# BloomidxFormat: the format of index pages, for tests that read or damage them.
#
# Offsets, sizes and constants are those of src/storage/format.h as the compiler sees them: page_format() of
# test/modules/pagefile has a line for each.  Fields are named "opaque.kind" or "meta.version"; see there.  Of a field of
# "desc", "shadow" or "group" the offset is that in its struct, of all others that in the page.

package BloomidxFormat;

use strict;
use warnings;

# Little-endian, by the size of the field; that of tests which call this, too, is checked by them.
my %template = (1 => 'C', 2 => 'v', 4 => 'V');

# Needs a running node; creates the module's functions in database postgres.  Undefined if the module is not installed.
sub new
{
	my ($class, $node) = @_;
	my (undef, undef, $error) = $node->psql(
		'postgres', q{
CREATE FUNCTION write_pages(regclass, bytea) RETURNS void LANGUAGE c STRICT AS 'pagefile';
CREATE FUNCTION page_format() RETURNS text LANGUAGE c STRICT AS 'pagefile'});
	my %format;

	return if $error =~ /could not access file/;
	foreach my $line (split /\n/, $node->safe_psql('postgres', 'SELECT page_format()'))
	{
		my ($name, $offset, $size) = split / /, $line;
		$format{$name} = { offset => $offset, size => $size };
	}
	return bless \%format, $class;
}

sub line
{
	my ($self, $name) = @_;
	return $self->{$name} || die "page_format() has no line for \"$name\"";
}

# The offset of a field, and its size.
sub at { my ($self, $name) = @_; return $self->line($name)->{offset}; }
sub size { my ($self, $name) = @_; return $self->line($name)->{size}; }

# The value of a constant.
sub constant { my ($self, $name) = @_; return $self->line($name)->{offset}; }
sub page_size { my ($self) = @_; return $self->constant('BLCKSZ'); }

# The bytes of an integer that go into a field, and the integer that a page has in a field.  The struct that the field is
# in may be elsewhere than at the start of the page.
sub bytes { my ($self, $name, $value) = @_; return pack $template{ $self->size($name) }, $value; }

sub value
{
	my ($self, $page, $name, $struct) = @_;
	return unpack $template{ $self->size($name) }, substr($page, ($struct || 0) + $self->at($name), $self->size($name));
}

# A page of layout block, of so many ranges: where the offset of filter i is.
sub filter_offset_at
{
	my ($self, $ranges, $i) = @_;
	return $self->constant('BX_BLOCK_LOWER(0)') - ($ranges - $i) * $self->filter_offset_size;
}

sub filter_offset_size
{
	my ($self) = @_;
	return $self->constant('BX_BLOCK_LOWER(0)') - $self->constant('BX_BLOCK_LOWER(1)');
}

1;
