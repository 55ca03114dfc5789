/*-------------------------------------------------------------------------
 *
 * progress.c
 *	  Saves and restores the progress report of a command, and reports the
 *	  progress of the SQL functions that read a whole table.
 *
 * A command's report must be saved in two cases.  The rollback of a
 * subtransaction ends the report, although the command continues.  And a SQL
 * function that reports its own progress may be called by a command that
 * reports progress, or by another such function.
 *
 * A function has no view for its progress.  pg_stat_progress_create_index has
 * the columns and the phases that describe the functions: "index validation"
 * for bloomidx_check, "building index" for bloomidx_summarize.  Column
 * "command" of the view is null.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/progress.h"
#include "pgstat.h"
#include "utils/rel.h"

#include "layout.h"

/*
 * Saves the progress of this backend, as shown in pg_stat_progress_vacuum and
 * similar views.
 */
void
bx_progress_save(BxProgress *progress)
{
	progress->command = PROGRESS_COMMAND_INVALID;
	if (MyBEEntry == NULL)
		return;
	progress->command = MyBEEntry->st_progress_command;
	progress->target = MyBEEntry->st_progress_command_target;
	memcpy(progress->params, MyBEEntry->st_progress_param,
		   sizeof(progress->params));
}

/* Restores the saved progress. */
void
bx_progress_restore(const BxProgress *progress)
{
	int			numbers[PGSTAT_NUM_PROGRESS_PARAM];

	if (progress->command == PROGRESS_COMMAND_INVALID)
		return;
	for (int i = 0; i < PGSTAT_NUM_PROGRESS_PARAM; i++)
		numbers[i] = i;
	pgstat_progress_start_command((ProgressCommandType) progress->command,
								  progress->target);
	pgstat_progress_update_multi_param(PGSTAT_NUM_PROGRESS_PARAM, numbers,
									   progress->params);
}

/*
 * Starts the report of a function, and saves that of its caller.
 */
void
bx_progress_start(Relation heap, Relation index, BxProgress *caller)
{
	const int	numbers[] = {PROGRESS_CREATEIDX_INDEX_OID,
	PROGRESS_CREATEIDX_ACCESS_METHOD_OID};
	const int64 values[] = {RelationGetRelid(index), index->rd_rel->relam};

	bx_progress_save(caller);
	pgstat_progress_start_command(PROGRESS_COMMAND_CREATE_INDEX,
								  RelationGetRelid(heap));
	pgstat_progress_update_multi_param(lengthof(numbers), numbers, values);
}

/*
 * Reports that a phase begins, which reads so many blocks; 0 if their number
 * is not known.
 */
void
bx_progress_phase(int64 phase, int64 subphase, BlockNumber blocks)
{
	const int	numbers[] = {PROGRESS_CREATEIDX_PHASE,
		PROGRESS_CREATEIDX_SUBPHASE, PROGRESS_SCAN_BLOCKS_TOTAL,
	PROGRESS_SCAN_BLOCKS_DONE};
	const int64 values[] = {phase, subphase, blocks, 0};

	pgstat_progress_update_multi_param(lengthof(numbers), numbers, values);
}

/* Reports the number of blocks that the phase has read. */
void
bx_progress_blocks(BlockNumber blocks)
{
	pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, blocks);
}

/* Ends the report of a function, and restores that of its caller. */
void
bx_progress_end(const BxProgress *caller)
{
	pgstat_progress_end_command();
	bx_progress_restore(caller);
}
